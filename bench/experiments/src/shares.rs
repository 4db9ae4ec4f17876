//! Shares of several senders that flood one port (fairness paper, figures 6 and 7), with one receiver in place of the host, and
//! senders of frames of different sizes.
//!
//! The receiver has a limit, or its client is slow: it takes a fixed number of bits a second.

use std::io;

use ringway_traffic::VirtioOptions;

use crate::daemon::{Daemon, LONG, RingwayNetwork, Settings, VhostUser};
use crate::limits::{Flood, Metric, Plan};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;

const SENDERS: [usize; 4] = [2, 4, 16, 64];
/// Weights of the first of two senders; the second has 1.
const WEIGHTS: [usize; 4] = [1, 2, 5, 16];
const SOURCE: &str = "fairness paper, figures 6 and 7";

/// Bytes of frames as long as TCP segments whose segmentation is left to the NIC.
const SEGMENTS: usize = 65_226;
/// Bits per second that a slow receiver takes: the rate of the limits.
const PACE: f64 = 200e6;

/// What limits the receiver.
struct Bottleneck {
    series: &'static str,
    /// Keys of the receiver.
    receiver: &'static str,
    /// Keys of each sender.
    sender: &'static str,
    /// Keys of the bucket that the ports name.
    bucket: Option<&'static str>,
    /// Bits per second that the receiver takes; `None`: all that comes.
    pace: Option<f64>,
}

const WAYS: [Bottleneck; 5] = [
    Bottleneck { series: RINGWAY, receiver: "egress = { rate = \"200Mbit\" }", ..NO_LIMIT },
    Bottleneck {
        series: "ringway, waits",
        receiver: "egress = { rate = \"200Mbit\", on_excess = \"wait\" }",
        ..NO_LIMIT
    },
    Bottleneck {
        series: "receiver's bucket",
        receiver: "egress = { bucket = \"shared\" }",
        bucket: BUCKET,
        ..NO_LIMIT
    },
    Bottleneck { series: "senders' bucket", sender: "ingress = { bucket = \"shared\" }", bucket: BUCKET, ..NO_LIMIT },
    Bottleneck { pace: Some(PACE), ..NO_LIMIT },
];
const NO_LIMIT: Bottleneck =
    Bottleneck { series: "slow receiver without limit", receiver: "", sender: "", bucket: None, pace: None };
const BUCKET: Option<&str> = Some("rate = \"200Mbit\"");

/// Sizes of a sender's frames, different for each of four; one sender has segments.
fn sizes(number: usize) -> Vec<usize> {
    match number {
        3 => vec![SEGMENTS],
        _ => [vec![60], vec![1514], vec![60, 590, 1514], vec![256]][number % 4].clone(),
    }
}

/// Measures the figures between process ports.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    figures::<Daemon>(session, "shares")
}

/// Measures the figures between vhost-user ports.
///
/// # Errors
/// The cores cannot be used.
pub fn run_vhost(session: &mut Session) -> io::Result<Vec<Figure>> {
    figures::<VhostUser>(session, "shares-vhost")
}

fn figures<N: RingwayNetwork>(session: &mut Session, experiment: &str) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    // A driver's rings are as long as those of process ports, and its buffers hold the longest frame.
    let virtio = VirtioOptions { tx_ring: 2048, rx_ring: 2048, buffer_size: 65_536, ..VirtioOptions::default() };
    let settings = Settings { shape: LONG, virtio, ..session.settings() };
    // `besides` has more keys of each sender.
    let start = |way: &Bottleneck, besides: Vec<String>, sizes: Vec<Vec<usize>>, metric| {
        let plan = Plan { pace: way.pace, ..Plan::new(sizes, metric) };
        let senders = besides.iter().map(|keys| format!("{keys}\n{}", way.sender));
        let keys = [way.receiver.to_owned()].into_iter().chain(senders).collect();
        let settings = Settings { keys, bucket: way.bucket, ..settings.clone() };
        Flood::new(N::with_ports(cores, &settings, 1 + plan.sizes.len())?, cores, plan)
    };
    let mut lineup = session.lineup();
    for senders in session.places(&SENDERS) {
        lineup.anchor(senders, 590);
        for way in &WAYS {
            let (besides, sizes) = (vec![String::new(); senders], (0..senders).map(sizes).collect());
            lineup.add_with(way.series, senders as f64, || start(way, besides, sizes, Metric::Fairness));
        }
    }
    let heading = Heading {
        name: format!("shares{}", N::SUFFIX),
        title: format!(
            "Jain's index of ports of equal weight that flood one of 200 Mbit/s, frames of 60 to 1514 bytes, one with 64 KiB, {}",
            N::PORTS
        ),
        source: SOURCE,
        x: Axis { label: "flooding ports", unit: "ports", logarithmic: true },
        y: Axis { label: "fairness", unit: "Jain's index", logarithmic: false },
    };
    let shares = session.measure(experiment, heading, lineup)?;

    let mut lineup = session.lineup();
    for weight in session.places(&WEIGHTS) {
        lineup.anchor(weight, 590);
        for way in &WAYS {
            let (besides, sizes) = (vec![format!("weight = {weight}"), String::new()], vec![vec![60], vec![1514]]);
            lineup.add_with(way.series, weight as f64, || start(way, besides, sizes, Metric::FirstToSecond));
        }
    }
    let heading = Heading {
        name: format!("shares-weight{}", N::SUFFIX),
        title: format!(
            "Bytes of a port of this weight (60-byte frames) for each of one with weight 1 (1514-byte frames), {}",
            N::PORTS
        ),
        source: SOURCE,
        x: Axis { label: "weight", unit: "times", logarithmic: true },
        y: Axis { label: "share", unit: "times", logarithmic: true },
    };
    Ok(vec![shares, session.measure(experiment, heading, lineup)?])
}
