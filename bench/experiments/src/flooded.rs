//! The fairness paper's figures 6 to 10: rates of flooded ports, and what a flood costs.
//!
//! Figures 6 and 7: one sender floods 1, 2, 4 and 64 ports by turns. Figures 8 and 9: calls of a client and the poller's busy time.
//! The sender offers 1 Gbit/s, as the paper's generator does, to one port whose client sleeps until the switch calls it, without a
//! limit and with a limit of 24,000 frames a second. One curve is a sender that sends 24,000 frames a second by itself. Two more
//! figures have other limits. Figure 10 of the paper has instructions for each frame. Here the poller's time for each sent frame
//! stands in its place, calls and sleep included; `limit_cost` under callgrind counts instructions. Each figure is measured between
//! process ports and between vhost-user ports.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringway_traffic::{
    Checker, Fill, FrameSpec, Frames, Level, Limits, Mac, Origin, Pump, PumpOptions, Rate, RxOptions, Station,
    TxOptions, Watch, receive, transmit,
};

use crate::daemon::{Daemon, RingwayNetwork, Settings, VhostUser};
use crate::extra_counts::ExtraCounts;
use crate::network::{Network, SENDER, introduce};
use crate::placement::{Cores, pin};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;

/// Numbers of flooded ports.
const PORTS: [usize; 4] = [1, 2, 4, 64];
/// Frame sizes in bytes; with the FCS they are the paper's.
const SIZES: [usize; 6] = [60, 124, 252, 508, 1020, 1514];
/// Frames per second: the paper's limit, and those of frames of 60 bytes.
const LIMIT: usize = 24_000;
const LIMITS: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
/// Offered load in bits per second.
const OFFERED: usize = 1_000_000_000;
/// Windows of the second pair are longer than those of other experiments by this factor.
const LONGER: u32 = 5;

/// One sender that floods several ports.
struct Ports<N: Network> {
    // Ports are dropped before their network.
    pump: Pump<N::Port>,
    network: N,
    each: ExtraCounts,
    cores: Cores,
}

impl<N: Network> Ports<N> {
    fn new(mut network: N, cores: Cores, receivers: usize, each: ExtraCounts) -> io::Result<Ports<N>> {
        let mut ports = network.attach(1 + receivers)?;
        introduce(&mut ports)?;
        network.hold()?;
        let destinations = (1..=receivers as u32).map(|number| Mac::local(SENDER + number)).collect();
        let spec = FrameSpec { source: Mac::local(SENDER), destinations, ..FrameSpec::default() };
        let mut frames = Some(Frames::new(&spec).map_err(io::Error::other)?);
        let stations = ports.into_iter().map(|port| match frames.take() {
            Some(frames) => Station::source(port, frames),
            None => Station::sink(port, Checker::new(Level::Count, Origin::Zero)),
        });
        let pump = Pump::new(stations, PumpOptions { fill: Fill::Once, ..PumpOptions::default() });
        Ok(Ports { pump, network, each, cores })
    }
}

impl<N: Network> Contestant for Ports<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.pump.run(span / 8, &mut Watch::none())?;
        let report = self.pump.run(span, &mut Watch::none())?;
        let rates = report.stations[1..].iter().map(|station| station.received.frames_per_second / 1e6);
        let ports = rates.len() as f64;
        let (least, most, sum) =
            rates.fold((f64::INFINITY, 0f64, 0.0), |(low, high, sum), r| (low.min(r), high.max(r), sum + r));
        if sum == 0.0 {
            return Err(io::Error::other("no frame got through"));
        }
        self.each.note(0, RINGWAY, ports, least);
        self.each.note(0, "the port that got most", ports, most);
        Ok(sum)
    }
}

/// One sender to one port that sleeps until it is called.
struct Limited<N: RingwayNetwork> {
    // Ports are dropped before their network.
    ports: [N::Port; 2],
    frames: Frames,
    rate: Rate,
    network: N,
    /// Notes the poller's time.
    series: &'static str,
    x: usize,
    busy: ExtraCounts,
    cores: Cores,
}

impl<N: RingwayNetwork> Limited<N> {
    fn new(
        mut network: N,
        cores: Cores,
        size: usize,
        rate: Rate,
        (series, x, busy): (&'static str, usize, ExtraCounts),
    ) -> io::Result<Limited<N>> {
        let mut ports = network.attach(2)?;
        introduce(&mut ports)?;
        network.hold()?;
        let (source, destinations) = (Mac::local(SENDER), vec![Mac::local(SENDER + 1)]);
        let spec = FrameSpec { size, source, destinations, ..FrameSpec::default() };
        let frames = Frames::new(&spec).map_err(io::Error::other)?;
        let ports = <[N::Port; 2]>::try_from(ports).map_err(|_| io::Error::other("a port is missing"))?;
        Ok(Limited { ports, frames, rate, network, series, x, busy, cores })
    }

    /// Sends for `span` and receives meanwhile. Returns the number of frames sent. Two threads share the generator's core.
    fn run(&mut self, span: Duration) -> io::Result<u64> {
        let [sender, receiver] = &mut self.ports;
        let options = TxOptions {
            limits: Limits { frames: None, duration: Some(span) },
            batch: 32,
            rate: self.rate,
            ..TxOptions::default()
        };
        let over = &AtomicBool::new(false);
        thread::scope(|scope| {
            let sink = scope.spawn(move || {
                let mut checker = Checker::new(Level::Count, Origin::Zero);
                receive(receiver, &mut checker, None, &RxOptions::default(), &mut Watch::none().stop_by(over))
            });
            let sent = transmit(sender, &mut self.frames, &options, &mut Watch::none());
            over.store(true, Ordering::Relaxed);
            sink.join().map_err(|_| io::Error::other("the receiving thread panicked"))??;
            Ok(sent?.sent.frames)
        })
    }

    /// Returns the calls of the receiver so far, and the poller's busy time in seconds.
    fn cost(&mut self) -> io::Result<(u64, f64)> {
        let daemon = self.network.daemon();
        let status = daemon.status()?;
        let ports = status["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let receiver = ports.iter().find(|port| port["name"] == N::port_name(1));
        let calls = receiver.and_then(|port| port["calls"].as_u64());
        Ok((calls.ok_or_else(|| io::Error::other("the receiver is not in the status"))?, daemon.times()?.0))
    }
}

impl<N: RingwayNetwork> Contestant for Limited<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    fn needs_its_core(&self) -> bool {
        // Two threads share the generator's core.
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let span = span * LONGER;
        // First the limit spends what it saved while the network was stopped.
        self.run(span / 4)?;
        let before = self.cost()?;
        let sent = self.run(span)?;
        let after = self.cost()?;
        let (seconds, busy) = (span.as_secs_f64(), after.1 - before.1);
        self.busy.note(0, self.series, self.x as f64, busy / seconds * 100.0);
        self.busy.note(1, self.series, self.x as f64, busy * 1e9 / sent.max(1) as f64);
        Ok((after.0 - before.0) as f64 / seconds)
    }
}

/// Measures the figures between process ports.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    figures::<Daemon>(session, "flooded")
}

/// Measures the figures between vhost-user ports.
///
/// # Errors
/// The cores cannot be used.
pub fn run_vhost(session: &mut Session) -> io::Result<Vec<Figure>> {
    figures::<VhostUser>(session, "flooded-vhost")
}

fn figures<N: RingwayNetwork>(session: &mut Session, experiment: &str) -> io::Result<Vec<Figure>> {
    let heading = |name: &str, title: &str, source, x, y| Heading {
        name: format!("{name}{}", N::SUFFIX),
        title: format!("{title}, {}", N::PORTS),
        source,
        x,
        y,
    };
    let cores = session.cores;
    let each = ExtraCounts::default();
    let mut lineup = session.lineup();
    for ports in session.places(&PORTS) {
        lineup.anchor(ports, 60);
        let network = N::with_ports(cores, &session.settings(), 1 + ports);
        let each = each.clone();
        lineup.add(RINGWAY, ports, network.and_then(|network| Ports::new(network, cores, ports, each)));
    }
    let x = Axis { label: "flooded ports", unit: "ports", logarithmic: true };
    let title = "Rate of one sender that floods ports in turn, frames of 60 bytes, all ports together";
    let all = heading("flooded-all", title, "fairness paper, figure 6", x, RATE);
    let all = session.measure(experiment, all, lineup)?;
    let title = "Rate of one sender that floods ports in turn, frames of 60 bytes, at the port that got least";
    let each = each.figure(0, heading("flooded-each", title, "fairness paper, figure 7", x, RATE), &all);

    let sizes: Vec<_> = session.places(&SIZES).into_iter().map(|size| (size, size, LIMIT)).collect();
    let x = Axis { label: "frame size", unit: "bytes", logarithmic: false };
    let names = [
        ("flooded-calls", "fairness paper, figure 8"),
        ("flooded-busy", "fairness paper, figure 9"),
        ("flooded-cost", "fairness paper, figure 10"),
    ];
    let by_size = limited::<N>(session, experiment, names, "24,000 frames a second", x, &sizes)?;

    let limits: Vec<_> = session.places(&LIMITS).into_iter().map(|limit| (limit, 60, limit)).collect();
    let x = Axis { label: "limit", unit: "frame/s", logarithmic: true };
    let names = [
        ("flooded-limit-calls", "fairness paper, section 6.2.2"),
        ("flooded-limit-busy", "section 6.2.3"),
        ("flooded-limit-cost", "section 6.2.3"),
    ];
    let by_limit = limited::<N>(session, experiment, names, "so many frames of 60 bytes a second", x, &limits)?;
    Ok([all, each].into_iter().chain(by_size).chain(by_limit).collect())
}

/// Calls, the poller's time, and its time for each frame sent, at places of an x axis, each with a frame size and a limit.
fn limited<N: RingwayNetwork>(
    session: &mut Session,
    experiment: &str,
    names: [(&str, &'static str); 3],
    limit: &str,
    x: Axis,
    places: &[(usize, usize, usize)],
) -> io::Result<[Figure; 3]> {
    let (cores, busy) = (session.cores, ExtraCounts::default());
    let mut lineup = session.lineup();
    for &(place, size, limit) in places {
        let egress = format!("egress = {{ frames = \"{limit}pps\" }}");
        let ingress = |excess| format!("ingress = {{ frames = \"{limit}pps\", on_excess = \"{excess}\" }}");
        // The first port sends.
        let (no, flood) = (String::new, Rate::Frames((OFFERED / 8 / size) as u64));
        for (series, keys, rate) in [
            ("without limit", [no(), no()], flood),
            (RINGWAY, [no(), egress], flood),
            ("dropped at the sender", [ingress("drop"), no()], flood),
            ("waits at the sender", [ingress("wait"), no()], flood),
            ("sent by itself as the limit is", [no(), no()], Rate::Frames(limit as u64)),
        ] {
            let settings = Settings { keys: keys.into(), idle: "adaptive", ..session.settings() };
            let noted = (series, place, busy.clone());
            let network = N::with_ports(cores, &settings, 2);
            lineup.add(series, place, network.and_then(|network| Limited::new(network, cores, size, rate, noted)));
        }
    }
    let heading = |(name, source): (&str, &'static str), title, y| Heading {
        name: format!("{name}{}", N::SUFFIX),
        title: format!("{title} flooded with 1 Gbit/s and limited to {limit} (at itself: ringway), {}", N::PORTS),
        source,
        x,
        y,
    };
    let y = Axis { label: "calls", unit: "per second", logarithmic: true };
    let calls = session.measure(experiment, heading(names[0], "Calls of a client", y), lineup)?;
    let y = Axis { label: "busy", unit: "%", logarithmic: true };
    let share = busy.figure(0, heading(names[1], "The poller's time for a client", y), &calls);
    let y = Axis { label: "poller", unit: "ns per frame sent", logarithmic: true };
    let cost = busy.figure(1, heading(names[2], "The poller's time for each frame to a client", y), &calls);
    Ok([calls, share, cost])
}
