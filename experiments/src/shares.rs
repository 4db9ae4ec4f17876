//! Who gets how much of a port that several flood: the fairness paper's figures 6 and 7, with one receiver in place of the
//! host, and ports that send frames of different sizes.

use std::io;

use crate::daemon::{Daemon, LONG, Settings};
use crate::limits::{Flood, Told};
use crate::report::{Axis, Figure, Heading};
use crate::session::{RINGWAY, Session};

const SENDERS: [usize; 4] = [2, 4, 16, 64];
/// Weights of the first of two senders; the second has 1.
const WEIGHTS: [usize; 4] = [1, 2, 5, 16];
const SOURCE: &str = "fairness paper, figures 6 and 7";

/// Frames as long as segments that are left to the NIC.
const SEGMENTS: usize = 65_226;

/// Sizes of a sender's frames, different for each of four; one sender has segments.
fn sizes(number: usize) -> Vec<usize> {
    match number {
        3 => vec![SEGMENTS],
        _ => [vec![60], vec![1514], vec![60, 590, 1514], vec![256]][number % 4].clone(),
    }
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let ways: [(&str, &str); 3] = [
        ("ringway without limit", ""),
        (RINGWAY, "egress = { rate = \"200Mbit\" }"),
        ("ringway, waits", "egress = { rate = \"200Mbit\", on_excess = \"wait\" }"),
    ];
    let mut lineup = session.lineup();
    for senders in session.places(&SENDERS) {
        lineup.anchor(senders, 590);
        for (series, limit) in ways {
            let settings = Settings { keys: vec![limit.to_owned()], shape: LONG, ..session.settings() };
            let sizes: Vec<Vec<usize>> = (0..senders).map(sizes).collect();
            let flood = Daemon::start(cores, &settings);
            lineup.add(series, senders, flood.and_then(|daemon| Flood::new(daemon, cores, &sizes, Told::Fairness)));
        }
    }
    let heading = Heading {
        name: "shares".into(),
        title: "Jain's index of ports of equal weight that flood one of 200 Mbit/s, frames of 60 to 1514 bytes, one with 64 KiB".into(),
        source: SOURCE,
        x: Axis { label: "flooding ports", unit: "ports", logarithmic: true },
        y: Axis { label: "fairness", unit: "Jain's index", logarithmic: false },
    };
    let shares = session.measure("shares", heading, lineup)?;

    let mut lineup = session.lineup();
    for weight in session.places(&WEIGHTS) {
        lineup.anchor(weight, 590);
        for (series, limit) in &ways[1..] {
            let keys = vec![(*limit).to_owned(), format!("weight = {weight}")];
            let settings = Settings { keys, shape: LONG, ..session.settings() };
            let flood = Daemon::start(cores, &settings);
            let sizes = [vec![60], vec![1514]];
            lineup.add(series, weight, flood.and_then(|daemon| Flood::new(daemon, cores, &sizes, Told::FirstToSecond)));
        }
    }
    let heading = Heading {
        name: "shares-weight".into(),
        title: "Bytes of a port of this weight (60-byte frames) for each of one with weight 1 (1514-byte frames)"
            .into(),
        source: SOURCE,
        x: Axis { label: "weight", unit: "times", logarithmic: true },
        y: Axis { label: "share", unit: "times", logarithmic: true },
    };
    Ok(vec![shares, session.measure("shares", heading, lineup)?])
}
