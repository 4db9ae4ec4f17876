//! VPE end to end: two Ringway daemons as on two hosts, each with a guest and its end of a cable, against a QEMU TAP device and a Linux
//! bridge on each host, with the same guests.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::daemon::Settings;
use crate::extra_counts::ExtraCounts;
use crate::peers::cable::Cable;
use crate::peers::vm_bridge::VmBridge;
use crate::report::{Axis, Figure, Heading};
use crate::series::{QEMU_TAP_BRIDGE, RINGWAY};
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm::{Booting, Keyed, Shared, Stream, Switches, Traffic};
use crate::vm_switch::{TwoHosts, VmSwitch};

/// Curve of pollers that are bound to a core each (VPE, section 5.4).
const BOUND: &str = "ringway, pollers bound";
const COALESCE_OFF: &str = "ringway, coalesce off";
/// What is counted while TCP flows: name, title, source and unit.
const FURTHER: [(&str, &str, &str, &str); 3] = [
    ("interrupts", "Interrupts of both guests' NICs", "VPE, figure 4", "per Mbit"),
    ("sending", "Share of the sending host's poller's time that is busy", "VPE, figures 10 and 11", "%"),
    ("receiving", "Share of the receiving host's poller's time that is busy", "VPE, figures 10 and 11", "%"),
];
const WAYS: Axis = Axis { label: "ways", unit: "streams", logarithmic: false };

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let settings = Settings { core: None, idle: "adaptive", ..session.settings() };
    let bridges = Cable::start().and_then(|cable| VmBridge::between_hosts(&cable));
    let switches = Switches::start(TwoHosts::start(cores, &settings, [None; 2]), bridges, cores);
    let bound = || {
        let hosts = TwoHosts::start(cores, &settings, [cores.generator, cores.switch].map(Some));
        Booting::start(hosts, cores).and_then(Booting::ready)
    };
    let bound = if session.options.wants(BOUND) { bound() } else { Err(io::Error::other("not asked for")) };
    let figures = [
        ("hosts-tcp", "TCP with segmentation left to others (TSO)", Traffic::Tcp { segments: true }, "Gbit/s"),
        ("hosts-tcp-cut", "TCP that the guests segment", Traffic::Tcp { segments: false }, "Gbit/s"),
        ("hosts-ping", "one ping after the other", Traffic::PingPong, "kping/s"),
    ];
    let mut done = Vec::new();
    for (name, what, traffic, unit) in figures {
        let counts = ExtraCounts::default();
        let mut lineup = session.lineup();
        for (series, machines, coalesce) in
            [(RINGWAY, &switches.ringway, "auto"), (COALESCE_OFF, &switches.ringway, "off"), (BOUND, &bound, "auto")]
        {
            if series == COALESCE_OFF && traffic != (Traffic::Tcp { segments: false }) {
                continue;
            }
            let contestant = with_any(machines, |machines| {
                let key = format!("coalesce={coalesce}");
                let inner = Keyed { stream: Stream::new(Rc::clone(&machines), traffic), key };
                Watched { inner, machines, times: Some(TwoHosts::times), from: 0, series, counts: counts.clone() }
            });
            lineup.add(series, 1, contestant);
        }
        let theirs = with_any(&switches.bridge, |machines| {
            let inner = Stream::new(Rc::clone(&machines), traffic);
            Watched { inner, machines, times: None, from: 0, series: QEMU_TAP_BRIDGE, counts: counts.clone() }
        });
        lineup.add(QEMU_TAP_BRIDGE, 1, theirs);
        let title = format!("{what} between virtual machines on two hosts");
        let y = Axis { label: "rate", unit, logarithmic: false };
        let heading = Heading { name: name.into(), title, source: "VPE, section 5.1", x: WAYS, y };
        let figure = session.measure("hosts", heading, lineup)?;
        let further: Vec<Figure> = FURTHER
            .iter()
            .enumerate()
            .filter(|_| traffic != Traffic::PingPong)
            .map(|(kind, &(end, title, source, unit))| {
                let (name, title) = (format!("{name}-{end}"), format!("{title}: {what}"));
                let y = Axis { label: end, unit, logarithmic: false };
                counts.figure(kind, Heading { name, title, source, x: WAYS, y }, &figure)
            })
            .collect();
        done.push(figure);
        done.extend(further);
    }
    Ok(done)
}

/// Returns the busy seconds and all seconds of a host's poller.
type Times<S> = fn(&S, usize) -> io::Result<(f64, f64)>;

/// A contestant whose windows also note what the guests and the pollers had to do.
struct Watched<C, S: VmSwitch> {
    inner: C,
    machines: Shared<S>,
    times: Option<Times<S>>,
    /// Number of the guest that sends next: they send by turns.
    from: usize,
    series: &'static str,
    counts: ExtraCounts,
}

impl<C, S: VmSwitch> Watched<C, S> {
    fn times(&self, number: usize) -> io::Result<(f64, f64)> {
        self.times.map_or(Ok((0.0, 0.0)), |times| times(self.machines.borrow().switch(), number))
    }
}

impl<C: Contestant, S: VmSwitch> Contestant for Watched<C, S> {
    fn resume(&mut self) -> io::Result<()> {
        self.inner.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.inner.hold()
    }

    fn needs_its_core(&self) -> bool {
        self.inner.needs_its_core()
    }

    fn depends_on_distance(&self) -> bool {
        self.inner.depends_on_distance()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let hosts = [self.from, 1 - self.from];
        self.from = 1 - self.from;
        let taken = self.machines.borrow().taken()?;
        let times = [self.times(hosts[0])?, self.times(hosts[1])?];
        let rate = self.inner.window(span)?;
        let taken_then = self.machines.borrow().taken()?;
        let megabits = (taken_then.bytes - taken.bytes) * 8.0 / 1e6;
        self.counts.note(0, self.series, 1.0, (taken_then.interrupts - taken.interrupts) / megabits);
        if self.times.is_some() {
            for (place, (host, (busy, all))) in hosts.into_iter().zip(times).enumerate() {
                let (busy_then, all_then) = self.times(host)?;
                self.counts.note(1 + place, self.series, 1.0, (busy_then - busy) / (all_then - all) * 100.0);
            }
        }
        Ok(rate)
    }
}
