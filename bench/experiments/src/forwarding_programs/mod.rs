//! Forwarding programs (VALE, sections 3.3 and 7): their rate beside the learning bridge that is built in, an access list beside the same
//! rules in Open vSwitch, and what replacing a program delays.
//!
//! The programs are examples of the kit for Rust. They are compiled when they are measured, with the kit that is within `ringway`.

mod compiled;
mod modules;
mod replaced;
mod rules;

use std::io;
use std::time::Duration;

use ringway_client::Shape;
use ringway_traffic::{Split, VirtioOptions};

use crate::daemon::{BUSY, Daemon, RingwayNetwork as _, Settings, VhostUser};
use crate::network::{Forwarding, Load, Network};
use crate::peers::ovs_dpdk::OvsDpdk;
use crate::peers::vhost::Vhost;
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::{OVS_DPDK, RINGWAY};
use crate::session::{Session, one_to_one};
use crate::trial::Contestant;
use compiled::{EXPERIMENT, Programs, RULES, SOURCE};
use modules::{LEARNING_BRIDGE, NULL};

const SIZES: [usize; 2] = [64, 1514];
/// Numbers of flows. A sender's ring has a buffer for each, so that buffers that are filled once hold all of them.
const FLOWS: [usize; 2] = [1, 4096];
/// Curves of Ringway without a program beside those with one.
const BUILT_IN: &str = "ringway, no program";
/// Curves of Open vSwitch that also follows connections, as the access list does.
const OVS_CONNECTIONS: &str = "ovs-dpdk, connections";
/// Time of load before the first window: Open vSwitch puts flows into its caches one by one.
const WARM_UP: Duration = Duration::from_millis(500);

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let programs = Programs::compile(&session.options.program);
    let mut figures = Vec::new();
    // Every start of Open vSwitch takes seconds.
    let (sizes, flows) = if session.options.quick { (&SIZES[..1], &FLOWS[..1]) } else { (&SIZES[..], &FLOWS[..]) };
    for &size in sizes {
        figures.push(beside_learning(session, &programs, size)?);
    }
    for &size in sizes {
        for &flows in flows {
            figures.push(beside_open_flow(session, &programs, size, flows)?);
        }
    }
    figures.extend(replaced::figures(session, &programs)?);
    Ok(figures)
}

/// Returns a load of `flows` flows with frames of one size. A list of `rules` rules allows all of them.
fn load(size: usize, flows: usize, rules: usize) -> Load {
    Load { flows, addresses: rules::addresses(rules, flows), ..one_to_one(size) }
}

/// A forwarding that was under load for a while. A thread that bounds the time of programs wakes 4,000 times a second, so windows count although the
/// generator is interrupted.
fn warm<N: Network>(session: &Session, network: N, load: Load) -> io::Result<Forwarding<N>> {
    let mut forwarding = Forwarding::new(network, session.cores, load)?.sharing_its_core();
    forwarding.resume()?;
    forwarding.window(if session.options.quick { WARM_UP / 50 } else { WARM_UP })?;
    forwarding.hold()?;
    Ok(forwarding)
}

/// Measures programs on process ports beside the learning bridge that is built in.
fn beside_learning(session: &mut Session, programs: &Programs, size: usize) -> io::Result<Figure> {
    let mut lineup = session.lineup();
    for flows in session.places(&FLOWS) {
        lineup.anchor(flows, size);
        let shape = Shape { tx_slots: BUSY.tx_slots.max(flows as u32), ..BUSY };
        let settings = Settings { shape, ..session.settings() };
        let mut add = |series: &str, rules, forwarding: &dyn Fn() -> io::Result<String>| {
            lineup.add_with(series, flows as f64, || {
                let settings = Settings { forwarding: forwarding()?, ..settings.clone() };
                warm(session, Daemon::start(session.cores, &settings)?, load(size, flows, rules))
            });
        };
        add(RINGWAY, RULES[1], &|| Ok(settings.forwarding.clone()));
        add("null program", RULES[1], &|| programs.forwarding(&NULL, ""));
        add("learning bridge program", RULES[1], &|| programs.forwarding(&LEARNING_BRIDGE, ""));
        for rules in session.places(&RULES) {
            add(&format!("access list, {rules} rules"), rules, &|| programs.access_list(rules));
        }
    }
    let heading = Heading {
        name: format!("programs-{size}"),
        title: format!("Forwarding programs, frames of {size} bytes, {}", Daemon::PORTS),
        source: SOURCE,
        x: Axis { label: "flows", unit: "flows", logarithmic: true },
        y: RATE,
    };
    session.measure(EXPERIMENT, heading, lineup)
}

/// Measures the access list on vhost-user ports beside Open vSwitch with the same rules.
fn beside_open_flow(session: &mut Session, programs: &Programs, size: usize, flows: usize) -> io::Result<Figure> {
    let (mut lineup, cores) = (session.lineup(), session.cores);
    // Open vSwitch takes a second to look at its sockets, and much more on a busy machine.
    let within = crate::patience::PATIENCE;
    let virtio = VirtioOptions { within, tx_ring: 256.max(flows as u32), ..VirtioOptions::default() };
    let settings = Settings { virtio: virtio.clone(), ..session.settings() };
    for rules in session.places(&RULES) {
        lineup.anchor(rules, size);
        let load = load(size, flows, rules);
        let mut ringway = |series: &str, forwarding: &dyn Fn() -> io::Result<String>| {
            lineup.add_with(series, rules as f64, || {
                let settings = Settings { forwarding: forwarding()?, ..settings.clone() };
                warm(session, VhostUser::with_ports(cores, &settings, 2)?, load.clone())
            });
        };
        ringway(BUILT_IN, &|| Ok(settings.forwarding.clone()));
        ringway(RINGWAY, &|| programs.access_list(rules));
        let with_connections = rules::open_flow_with_connections(rules);
        for (series, text) in [(OVS_DPDK, rules::open_flow(rules)), (OVS_CONNECTIONS, with_connections)] {
            lineup.add_with(series, rules as f64, || {
                let switch = OvsDpdk::start(cores)?;
                switch.set_rules(&text)?;
                warm(session, Vhost::<_, Split>::new(switch, virtio.clone()), load.clone())
            });
        }
    }
    let heading = Heading {
        name: format!("programs-rules-{size}-{flows}"),
        title: format!(
            "An access list, frames of {size} bytes of {flows} {}, {}",
            if flows == 1 { "flow" } else { "flows" },
            VhostUser::PORTS
        ),
        source: SOURCE,
        x: Axis { label: "rules", unit: "rules", logarithmic: true },
        y: RATE,
    };
    session.measure(EXPERIMENT, heading, lineup)
}
