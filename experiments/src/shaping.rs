//! How exact a rate limit is, against rate, frame size and number of limited ports: the fairness paper's section 4.3, which
//! has no figure of it. Beside `tc` (tbf and htb) on the devices of a Linux bridge and Open vSwitch's policer.
//!
//! The sender floods; what is more is dropped at it, or waits, or is dropped at the receiver. Burst is what 10 ms bring, 16 KiB
//! at least. Windows in which no frame came for as long as a burst lasts do not count, of anybody: the generator or the switch
//! had no core, and what came in that time beyond the burst no token bucket gives. Open vSwitch counts frames without their
//! Ethernet header (14 bytes).

use std::io;
use std::time::Duration;

use ringway_traffic::{Split, VirtioOptions};

use crate::daemon::{Daemon, LONG, Settings};
use crate::limits::{Flood, Told};
use crate::peers::linux_bridge::{LinuxBridge, Steering};
use crate::peers::ovs_dpdk::OvsDpdk;
use crate::peers::vhost::Vhost;
use crate::report::{Axis, Figure, Heading};
use crate::session::{Lineup, OVS_DPDK, RINGWAY, Session};

/// Mbit/s.
const RATES: [usize; 5] = [1, 10, 100, 1_000, 4_000];
/// Bytes, at 100 Mbit/s.
const SIZES: [usize; 4] = [60, 256, 590, 1514];
/// Ports of 1 Mbit/s each.
const PORTS: [usize; 6] = [1, 4, 16, 64, 256, 1023];
const ERROR: Axis = Axis { label: "error", unit: "%", logarithmic: false };
/// Bytes of the least burst.
const LEAST_BURST: u32 = 16 << 10;
const SOURCE: &str = "fairness paper, section 4.3";

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut lineup = session.lineup();
    for rate in session.places(&RATES) {
        lineup.anchor(rate, 1514);
        everyone(session, &mut lineup, rate, rate, 1514);
    }
    let heading = |name: &str, title: &str, x| Heading {
        name: name.to_owned(),
        title: title.to_owned(),
        source: SOURCE,
        x,
        y: ERROR,
    };
    let x = Axis { label: "rate", unit: "Mbit/s", logarithmic: true };
    figures.push(session.measure(
        "shaping",
        heading("shaping-rate", "Error of a limit, frames of 1514 bytes", x),
        lineup,
    )?);

    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        lineup.anchor(size, size);
        everyone(session, &mut lineup, size, 100, size);
    }
    let x = Axis { label: "frame size", unit: "bytes", logarithmic: false };
    figures.push(session.measure("shaping", heading("shaping-size", "Error of a limit of 100 Mbit/s", x), lineup)?);

    let mut lineup = session.lineup();
    for ports in session.places(&PORTS) {
        lineup.anchor(ports, 1514);
        for (series, excess) in EXCESS {
            let limit = format!("ingress = {{ rate = \"1Mbit\", on_excess = \"{excess}\" }}");
            let mut keys = vec![String::new()];
            keys.extend(std::iter::repeat_n(limit, ports));
            ringway(session, &mut lineup, (series, ports), keys, &vec![vec![1514]; ports], ports as f64 * 1e6);
        }
    }
    let x = Axis { label: "limited ports", unit: "ports", logarithmic: true };
    figures.push(session.measure(
        "shaping",
        heading("shaping-ports", "Error of limits of 1 Mbit/s, all ports flooded", x),
        lineup,
    )?);
    Ok(figures)
}

/// Our ways to treat what is more.
const EXCESS: [(&str, &str); 2] = [(RINGWAY, "drop"), ("ringway, waits", "wait")];

fn ringway(
    session: &Session,
    lineup: &mut Lineup,
    (series, x): (&str, usize),
    keys: Vec<String>,
    sizes: &[Vec<usize>],
    bits: f64,
) {
    let cores = session.cores;
    let daemon = Daemon::start(cores, &Settings { keys, shape: LONG, ..session.settings() });
    lineup.add(series, x, daemon.and_then(|daemon| Flood::new(daemon, cores, sizes, error(bits, sizes.len()))));
}

/// The error of what so many ports with limits of `bits` together give; a burst is that of [`everyone`]'s peers, and our default.
fn error(bits: f64, ports: usize) -> Told {
    let each = bits / ports as f64;
    let burst = (each / 800.0).max(f64::from(LEAST_BURST));
    Told::Error(bits, Duration::from_secs_f64(burst * 8.0 / each))
}

/// One sender with a limit of `rate` Mbit/s, by every means.
fn everyone(session: &Session, lineup: &mut Lineup, x: usize, rate: usize, size: usize) {
    let (cores, bits, sizes) = (session.cores, rate as f64 * 1e6, [vec![size]]);
    for (series, excess) in EXCESS {
        let limit = format!("ingress = {{ rate = \"{rate}Mbit\", on_excess = \"{excess}\" }}");
        ringway(session, lineup, (series, x), vec![String::new(), limit], &sizes, bits);
    }
    let egress = format!("egress = {{ rate = \"{rate}Mbit\" }}");
    ringway(session, lineup, ("ringway, drops at the receiver", x), vec![egress], &sizes, bits);
    let burst = (rate * 1250).max(LEAST_BURST as usize);
    let tbf = vec![format!("qdisc add dev tap0 root tbf rate {rate}mbit burst {burst} latency 50ms")];
    let htb = vec![
        String::from("qdisc add dev tap0 root handle 1: htb default 1"),
        format!("class add dev tap0 parent 1: classid 1:1 htb rate {rate}mbit burst {burst} cburst {burst}"),
    ];
    for (series, tc) in [("tc tbf", tbf), ("tc htb", htb)] {
        let bridge = LinuxBridge::start_shaping(cores, 2, Steering::SwitchCore, tc);
        lineup.add(series, x, bridge.and_then(|bridge| Flood::new(bridge, cores, &sizes, error(bits, 1))));
    }
    let police = (rate as u64 * 1000, burst as u64 * 8 / 1000);
    let ovs = OvsDpdk::start_policing(cores, Some(police));
    let ovs = ovs.map(|ovs| Vhost::<_, Split>::new(ovs, VirtioOptions::default()));
    lineup.add(OVS_DPDK, x, ovs.and_then(|ovs| Flood::new(ovs, cores, &sizes, error(bits, 1))));
}
