//! Forwarding between two e1000 ports with our driver at each, by how often the driver touches registers, against our virtio-net
//! driver between two vhost-user ports of the same switch.

use std::io;
use std::time::Duration;

use ringway_traffic::e1000::Counters;
use ringway_traffic::{E1000Endpoint, E1000Mode, E1000Options, Split, VirtioOptions};

use crate::daemon::{Daemon, Settings};
use crate::extra_counts::ExtraCounts;
use crate::peers::e1000::E1000s;
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::{Load, Pair, Saturation, Shared, pair, with};

/// An 82540EM with the paravirtual extension, and an 82574L with mapped ring registers.
const CSB: &str = "csb = true";
/// An 82540EM with the paravirtual extension that reports each sent frame at once.
const TELLS: &str = "csb = true\ncompletion_delay = \"0s\"";
const MAPPED: &str = "model = \"e1000e\"\nregisters = \"mapped\"";
/// Descriptors of each ring, of either driver.
const RING: u32 = 256;
/// Frame sizes.
const SIZES: [usize; 3] = [64, 512, 1514];

/// Curves: name, keys of the ports, mode of the driver.
const WAYS: [(&str, &str, E1000Mode); 6] = [
    (RINGWAY, CSB, E1000Mode::Csb),
    ("ringway, mapped", MAPPED, E1000Mode::Mapped),
    ("ringway, combining", CSB, E1000Mode::Combining),
    ("ringway, moderated", CSB, E1000Mode::Moderated),
    ("ringway, base", TELLS, E1000Mode::Base),
    ("ringway, each", TELLS, E1000Mode::Each),
];

/// A count: short name, description, and how to compute it.
type Count = (&'static str, &'static str, fn(&Counters) -> u64);

/// Counts beside the rate, in the order of the figures.
const COUNTS: [Count; 4] = [
    ("messages", "messages of the vfio-user protocol", Counters::messages),
    ("tails", "tail writes by message", |counters| counters.tx_tail_writes + counters.rx_tail_writes),
    ("registers", "register reads and writes by message", |counters| {
        counters.register_reads + counters.register_writes
    }),
    ("interrupts", "interrupts", |counters| counters.interrupts),
];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let start = |keys, mode| -> io::Result<Shared<E1000s>> {
        let daemon = Daemon::start(cores, &Settings { e1000: Some(keys), ..session.settings() })?;
        let options = E1000Options {
            mode,
            tx_ring: RING,
            rx_ring: RING,
            within: crate::patience::PATIENCE,
            ..E1000Options::default()
        };
        Pair::new(E1000s::new(daemon, options), cores, RING as usize, false)
    };
    let ways = WAYS.map(|(name, keys, mode)| (name, mode, start(keys, mode)));
    let options = VirtioOptions { tx_ring: RING, rx_ring: RING, ..VirtioOptions::default() };
    let vhost = pair::<_, Split>(Daemon::start(cores, &session.vhost_settings()), cores, &options);

    let extra_counts = ExtraCounts::default();
    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        let load = Load { sizes: vec![size], both: false, tcp: false, broadcasts: false };
        lineup.anchor(size, size);
        lineup.add("ringway, vhost-user", size, with(&vhost, |pair| Saturation { pair, load: load.clone() }));
        for (series, mode, pair) in &ways {
            let extra_counts = extra_counts.clone();
            let contestant =
                with(pair, |pair| DriverRate { series, mode: *mode, size, pair, load: load.clone(), extra_counts });
            lineup.add(series, size, contestant);
        }
    }
    let x = Axis { label: "frame size", unit: "bytes", logarithmic: false };
    let heading = Heading {
        name: "e1000-forwarding".into(),
        title: "Forwarding between two e1000 ports with our own driver, by when it touches registers".into(),
        source: "Maffione, tables 3.1 and 4.1; ANCS 2013, figure 1",
        x,
        y: RATE,
    };
    let mut figures = vec![session.measure("e1000-forwarding", heading.clone(), lineup)?];
    for (kind, (name, what, _)) in COUNTS.iter().enumerate() {
        let heading = Heading {
            name: format!("e1000-forwarding-{name}"),
            title: format!("For each frame that is sent and received: {what}"),
            y: Axis { label: name, unit: "per frame", logarithmic: true },
            ..heading.clone()
        };
        figures.push(extra_counts.figure(kind, heading, &figures[0]));
    }
    Ok(figures)
}

/// The highest rate, in million frames per second. Notes the counts for each frame.
struct DriverRate {
    series: &'static str,
    mode: E1000Mode,
    size: usize,
    pair: Shared<E1000s>,
    load: Load,
    extra_counts: ExtraCounts,
}

/// Returns the counters of both drivers.
fn counted(ports: [&mut E1000Endpoint; 2]) -> [Counters; 2] {
    ports.map(|port| port.counters())
}

impl Contestant for DriverRate {
    fn resume(&mut self) -> io::Result<()> {
        crate::network::Network::resume(self.pair.borrow_mut().network())
    }

    fn hold(&mut self) -> io::Result<()> {
        crate::network::Network::hold(self.pair.borrow_mut().network())
    }

    fn needs_its_core(&self) -> bool {
        // In other modes the driver shares its core with the port's thread, which answers its messages.
        self.mode == E1000Mode::Csb
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let mut pair = self.pair.borrow_mut();
        let before = counted(pair.looked_at());
        let rate = pair.saturate(&self.load, span)?;
        let after = counted(pair.looked_at());
        let change = |count: &dyn Fn(&Counters) -> u64| -> u64 {
            after.iter().map(count).sum::<u64>() - before.iter().map(count).sum::<u64>()
        };
        // The receiver's count, so that a frame that is sent and received counts once.
        let frames = (after[1].frames - before[1].frames).max(1) as f64;
        for (kind, (.., count)) in COUNTS.iter().enumerate() {
            self.extra_counts.note(kind, self.series, self.size as f64, change(count) as f64 / frames);
        }
        Ok(rate)
    }
}
