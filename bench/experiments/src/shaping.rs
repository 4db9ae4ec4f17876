//! Error of a rate limit against rate, frame size, number of limited ports and burst (fairness paper, section 4.3, which has no
//! figure of it). Peers are `tc` (tbf and htb) on the devices of a Linux bridge and Open vSwitch's policer.
//!
//! The sender floods. The excess is dropped at the sender, waits there, or is dropped at the receiver. A burst is what the rate brings
//! in 10 ms, 16 KiB at least. Windows in which no frame came for as long as a burst lasts do not count, for any contestant: the
//! generator or the switch had no core, and no token bucket passes later what came then beyond the burst. Open vSwitch counts frames
//! without their Ethernet header (14 bytes). A limit passes whole frames only, so that a window is wrong by up to one frame: each
//! figure has an error in per cent and one in frames.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use ringway_traffic::{Split, VirtioOptions};

use crate::counted::{self, Counted};
use crate::daemon::{Daemon, LONG, Settings};
use crate::extra_counts::ExtraCounts;
use crate::limits::{Flood, Metric, Plan, SharedFlood};
use crate::peers::linux_bridge::{LinuxBridge, Steering};
use crate::peers::ovs_dpdk::OvsDpdk;
use crate::peers::vhost::Vhost;
use crate::report::{Axis, Figure, Heading};
use crate::series::{OVS_DPDK, RINGWAY};
use crate::session::{Lineup, Session};
use crate::vhost::with_any;

/// Rates in Mbit/s, frames of 1514 bytes.
const RATES: [usize; 5] = [1, 10, 100, 1_000, 4_000];
/// Rates in kbit/s and seconds of a window, frames of 60 bytes.
const SLOW: [(usize, u32); 2] = [(8, 8), (64, 3)];
/// Rates in Gbit/s and bytes of a frame. The last are as long as TCP segments whose segmentation is left to the NIC.
const FAST: [(usize, usize); 3] = [(10, 1514), (40, 1514), (100, 65_226)];
/// Rates in Gbit/s for limits whose frames nobody gets.
const COUNTED: [usize; 3] = [100, 200, 400];
/// Frame sizes in bytes, at 100 Mbit/s and at 1 Gbit/s.
const SIZES: [usize; 4] = [60, 256, 590, 1514];
/// Numbers of ports limited to 1 Mbit/s each; below them the most for peers.
const PORTS: [usize; 6] = [1, 4, 16, 64, 256, 1024];
const PEERS_PORTS: usize = 64;
/// Bursts in kB, at 10 Mbit/s.
const BURSTS: [usize; 3] = [16, 128, 512];
/// Smallest burst in bytes.
const LEAST_BURST: usize = 16 << 10;
/// Most frames a second that the generator surely offers to a TAP device.
const TAP_TAKES: usize = 400_000;
const SOURCE: &str = "fairness paper, section 4.3";

/// Rate and burst of a limit.
#[derive(Clone, Copy)]
struct Limit {
    /// Rate of each port, in kbit/s.
    kbit: usize,
    /// Burst, in bytes.
    burst: usize,
}

impl Limit {
    fn new(kbit: usize) -> Limit {
        Limit { kbit, burst: (kbit * 5 / 4).max(LEAST_BURST) }
    }

    fn bits(self) -> f64 {
        self.kbit as f64 * 1e3
    }

    /// Error of what `ports` ports get together.
    fn error(self, ports: usize) -> Metric {
        Metric::Error(self.bits() * ports as f64, self.refill())
    }

    /// Time in which the bucket refills a whole burst.
    fn refill(self) -> Duration {
        Duration::from_secs_f64(self.burst as f64 * 8.0 / self.bits())
    }

    fn ringway(self, side: &str, excess: &str) -> String {
        format!("{side} = {{ rate = \"{}kbit\", burst = \"{}B\", on_excess = \"{excess}\" }}", self.kbit, self.burst)
    }

    /// Commands that limit each of the first devices of a bridge.
    fn tc(self, discipline: &str, devices: usize) -> Vec<String> {
        let Limit { kbit, burst } = self;
        let each = |device| match discipline {
            "tc tbf" => vec![format!("qdisc add dev tap{device} root tbf rate {kbit}kbit burst {burst} latency 50ms")],
            _ => vec![
                format!("qdisc add dev tap{device} root handle 1: htb default 1"),
                format!(
                    "class add dev tap{device} parent 1: classid 1:1 htb rate {kbit}kbit burst {burst} cburst {burst}"
                ),
                format!("qdisc add dev tap{device} parent 1:1 pfifo limit 1000"),
            ],
        };
        (0..devices).flat_map(each).collect()
    }
}

/// Open vSwitch, started once for all places of a figure, as it takes seconds to start.
type Policer = io::Result<Rc<RefCell<Flood<Vhost<OvsDpdk, Split>>>>>;

/// Starts Open vSwitch for this number of senders.
fn police(session: &Session, senders: usize) -> Policer {
    if !session.options.wants(OVS_DPDK) {
        return Err(io::Error::other("not asked for"));
    }
    let options = VirtioOptions { within: crate::patience::PATIENCE, ..VirtioOptions::default() };
    let network = Vhost::new(OvsDpdk::start_with(session.cores, 1 + senders)?, options);
    let flood = Flood::new(network, session.cores, Plan::new(vec![vec![1514]; senders], Metric::Fairness))?;
    Ok(Rc::new(RefCell::new(flood)))
}

/// Adds Open vSwitch with every sender of the plan held to `limit`.
fn policed(lineup: &mut Lineup, police: &Policer, x: f64, plan: Plan, limit: Limit) {
    let change = move |network: &mut Vhost<OvsDpdk, Split>| network.switch().police(limit.kbit, limit.burst * 8 / 1000);
    lineup.add_at(OVS_DPDK, x, with_any(police, |flood| SharedFlood { flood, plan, change: Box::new(change) }));
}

/// Adds Ringway with these keys.
fn ringway(session: &Session, lineup: &mut Lineup, (series, x): (&str, f64), keys: Vec<String>, plan: Plan) {
    let (cores, settings) = (session.cores, Settings { keys, shape: LONG, ..session.settings() });
    lineup.add_with(series, x, || Flood::new(Daemon::start(cores, &settings)?, cores, plan));
}

/// Adds one of tc's disciplines at each receiver of the plan.
fn tc(session: &Session, lineup: &mut Lineup, (series, x): (&str, f64), limit: Limit, plan: Plan) {
    let (cores, commands) = (session.cores, limit.tc(series, plan.receivers));
    let ports = plan.receivers + plan.sizes.len();
    lineup.add_with(series, x, || {
        if limit.kbit * 125 * plan.receivers / plan.sizes[0][0] > TAP_TAKES {
            return Err(io::Error::other(format!("a TAP device takes hardly more than {TAP_TAKES} frames a second")));
        }
        Flood::new(LinuxBridge::start_shaping(cores, ports, Steering::SwitchCore, commands)?, cores, plan)
    });
}

/// Adds one limited sender, by every kind of limit.
fn everyone(session: &Session, lineup: &mut Lineup, ovs: &Policer, x: f64, limit: Limit, plan: &Plan) {
    for (series, excess) in EXCESS {
        ringway(session, lineup, (series, x), vec![String::new(), limit.ringway("ingress", excess)], plan.clone());
    }
    ringway(session, lineup, (AT_RECEIVER, x), vec![limit.ringway("egress", "drop")], plan.clone());
    // Peers have no frames longer than Ethernet's.
    if plan.sizes[0][0] <= 1514 {
        for series in TC {
            tc(session, lineup, (series, x), limit, plan.clone());
        }
        policed(lineup, ovs, x, plan.clone(), limit);
    }
}

/// Ringway's two ways to treat a sender's excess: name of the curve, value of `on_excess`.
const EXCESS: [(&str, &str); 2] = [(RINGWAY, "drop"), ("ringway, waits", "wait")];
const AT_RECEIVER: &str = "ringway, drops at the receiver";
const TC: [&str; 2] = ["tc tbf", "tc htb"];

/// A place of an x axis: one sender's rate, size of frames, and seconds of a window.
#[derive(Clone, Copy)]
struct Case {
    x: f64,
    kbit: usize,
    size: usize,
    seconds: u32,
}

/// Names, title and x axis of a pair of figures: in per cent and in frames.
struct FigurePair {
    experiment: &'static str,
    name: &'static str,
    title: &'static str,
    x: Axis,
}

impl FigurePair {
    /// Measures `lineup`; `frames` gives how many frames a window brings at a place.
    fn measure(self, session: &mut Session, lineup: Lineup, frames: impl Fn(f64) -> f64) -> io::Result<[Figure; 2]> {
        let heading = |name, unit| Heading {
            name,
            title: self.title.to_owned(),
            source: SOURCE,
            x: self.x,
            y: Axis { label: "error", unit, logarithmic: false },
        };
        let figure = session.measure(self.experiment, heading(self.name.to_owned(), "%"), lineup)?;
        let in_frames = figure.scaled(heading(format!("{}-frames", self.name), "frames"), |x| frames(x) / 100.0);
        Ok([figure, in_frames])
    }

    /// Measures one sender, by every kind of limit, at these places.
    fn one_sender(self, session: &mut Session, places: &[Case]) -> io::Result<[Figure; 2]> {
        let (mut lineup, ovs) = (session.lineup(), police(session, 1));
        for &Case { x, kbit, size, seconds } in places {
            lineup.anchor_at(x, size.min(1514));
            let limit = Limit::new(kbit);
            let plan = Plan { seconds, ..Plan::new(vec![vec![size]], limit.error(1)) };
            everyone(session, &mut lineup, &ovs, x, limit, &plan);
        }
        drop(ovs);
        self.measure(session, lineup, |x| {
            let place = places.iter().find(|place| place.x == x);
            place.map_or(0.0, |place| (place.kbit * 125) as f64 / place.size as f64 * f64::from(place.seconds))
        })
    }
}

fn rates(session: &Session, places: &[(f64, usize, usize, u32)]) -> Vec<Case> {
    let all: Vec<usize> = (0..places.len()).collect();
    let place = |(x, kbit, size, seconds)| Case { x, kbit, size, seconds };
    session.places(&all).into_iter().map(|index| place(places[index])).collect()
}

/// Measures the error against rates.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let places = rates(session, &RATES.map(|rate| (rate as f64, rate * 1000, 1514, 1)));
    let x = Axis { label: "rate", unit: "Mbit/s", logarithmic: true };
    let title = "Error of a limit, frames of 1514 bytes";
    let pair = FigurePair { experiment: "shaping", name: "shaping-rate", title, x };
    pair.one_sender(session, &places).map(Vec::from)
}

/// Measures the error at rates at which a second has few frames.
///
/// # Errors
/// The cores cannot be used.
pub fn slow(session: &mut Session) -> io::Result<Vec<Figure>> {
    let places = rates(session, &SLOW.map(|(rate, seconds)| (rate as f64, rate, 60, seconds)));
    let x = Axis { label: "rate", unit: "kbit/s", logarithmic: true };
    let title = "Error of a slow limit, frames of 60 bytes, windows of 8 and 3 seconds";
    let pair = FigurePair { experiment: "shaping-slow", name: "shaping-slow", title, x };
    pair.one_sender(session, &places).map(Vec::from)
}

/// Measures the error at the highest rates.
///
/// # Errors
/// The cores cannot be used.
pub fn fast(session: &mut Session) -> io::Result<Vec<Figure>> {
    let places = rates(session, &FAST.map(|(rate, size)| (rate as f64, rate * 1_000_000, size, 1)));
    let x = Axis { label: "rate", unit: "Gbit/s", logarithmic: true };
    let title = "Error of a fast limit, frames of 1514 bytes, at 100 Gbit/s of 64 KiB";
    let pair = FigurePair { experiment: "shaping-fast", name: "shaping-fast", title, x };
    pair.one_sender(session, &places).map(Vec::from)
}

/// Measures the error at rates that no core can copy, by the limit's own counters.
///
/// # Errors
/// The cores cannot be used.
pub fn counted(session: &mut Session) -> io::Result<Vec<Figure>> {
    let (mut lineup, cores, offered) = (session.lineup(), session.cores, ExtraCounts::default());
    for gigabit in session.places(&COUNTED) {
        let limit = Limit::new(gigabit * 1_000_000);
        for (series, excess) in EXCESS {
            let (keys, settings) = (limit.ringway("ingress", excess), session.settings());
            let (held_to, metric) = ((limit.bits(), limit.refill()), (series, offered.clone()));
            lineup.add_with(series, gigabit as f64, || Counted::new(cores, settings, keys, held_to, metric));
        }
    }
    let x = Axis { label: "rate", unit: "Gbit/s", logarithmic: true };
    let title = "Error of a limit by its own counters, frames of 64 KiB, nothing delivered";
    let pair = FigurePair { experiment: "shaping-counted", name: "shaping-counted", title, x };
    let [error, frames] = pair.measure(session, lineup, |x| x * 1e9 / 8.0 / counted::FRAME as f64)?;
    let heading = Heading {
        name: "shaping-counted-offered".into(),
        title: "What the switch took from that sender, passed or refused".into(),
        source: SOURCE,
        x,
        y: Axis { label: "taken", unit: "Gbit/s", logarithmic: true },
    };
    let offered = offered.figure(0, heading, &error);
    Ok(vec![error, frames, offered])
}

/// Measures the error against frame sizes.
///
/// # Errors
/// The cores cannot be used.
pub fn sizes(session: &mut Session) -> io::Result<Vec<Figure>> {
    let x = Axis { label: "frame size", unit: "bytes", logarithmic: false };
    let mut figures = Vec::new();
    for (name, title, kbit) in [
        ("shaping-size", "Error of a limit of 100 Mbit/s", 100_000),
        ("shaping-size-gigabit", "Error of a limit of 1 Gbit/s", 1_000_000),
    ] {
        let places = rates(session, &SIZES.map(|size| (size as f64, kbit, size, 1)));
        let pair = FigurePair { experiment: "shaping-sizes", name, title, x };
        figures.extend(pair.one_sender(session, &places)?);
    }
    Ok(figures)
}

/// Measures the error against the number of limited ports: senders, or receivers where these are limited.
///
/// # Errors
/// The cores cannot be used.
pub fn ports(session: &mut Session) -> io::Result<Vec<Figure>> {
    let (mut lineup, limit) = (session.lineup(), Limit::new(1000));
    let places = session.places(&PORTS);
    let most = places.iter().copied().filter(|&ports| ports <= PEERS_PORTS).max().unwrap_or(0);
    let ovs = police(session, most);
    for ports in places {
        lineup.anchor(ports, 1514);
        let x = ports as f64;
        let senders = Plan::new(vec![vec![1514]; ports], limit.error(ports));
        for (series, excess) in EXCESS {
            let mut keys = vec![String::new()];
            keys.extend(std::iter::repeat_n(limit.ringway("ingress", excess), ports));
            ringway(session, &mut lineup, (series, x), keys, senders.clone());
        }
        if ports <= PEERS_PORTS {
            let receivers = Plan { receivers: ports, ..Plan::new(vec![vec![1514]], limit.error(ports)) };
            let keys = vec![limit.ringway("egress", "drop"); ports];
            ringway(session, &mut lineup, (AT_RECEIVER, x), keys, receivers.clone());
            for series in TC {
                tc(session, &mut lineup, (series, x), limit, receivers.clone());
            }
            policed(&mut lineup, &ovs, x, senders, limit);
        }
    }
    drop(ovs);
    let x = Axis { label: "limited ports", unit: "ports", logarithmic: true };
    let title = "Error of limits of 1 Mbit/s together, all ports flooded, frames of 1514 bytes";
    let pair = FigurePair { experiment: "shaping-ports", name: "shaping-ports", title, x };
    pair.measure(session, lineup, |ports| ports * limit.bits() / 8.0 / 1514.0).map(Vec::from)
}

/// Measures what passes of a flood after a pause, against the configured burst.
///
/// # Errors
/// The cores cannot be used.
pub fn bursts(session: &mut Session) -> io::Result<Vec<Figure>> {
    let (mut lineup, ovs) = (session.lineup(), police(session, 1));
    for burst in session.places(&BURSTS) {
        lineup.anchor(burst, 1514);
        let limit = Limit { kbit: 10_000, burst: burst * 1000 };
        let plan = Plan::new(vec![vec![1514]], Metric::Burst(limit.bits(), limit.burst));
        everyone(session, &mut lineup, &ovs, burst as f64, limit, &plan);
    }
    drop(ovs);
    let heading = Heading {
        name: "shaping-burst".into(),
        title: "What passes of a sudden flood of frames of 1514 bytes beyond 10 Mbit/s and the burst".into(),
        source: SOURCE,
        x: Axis { label: "burst", unit: "kB", logarithmic: true },
        y: Axis { label: "beyond", unit: "frames", logarithmic: false },
    };
    Ok(vec![session.measure("shaping-burst", heading, lineup)?])
}
