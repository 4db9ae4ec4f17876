//! VALE, figure 12: round trip between two processes against frame size, everything asleep between frames, where the scheduler puts
//! it and on one core; and with everything spinning, in nanoseconds and in round trips of a cache line between the cores.

use std::io;

use crate::daemon::{Daemon, Settings};
use crate::network::Waiting;
use crate::peers::linux_bridge::{LinuxBridge, Steering};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::{LINUX_BRIDGE, RINGWAY};
use crate::session::{Session, round_trip};

const SIZES: [usize; 5] = [60, 256, 512, 1024, 1514];

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (waiting, name, place) in [
        (Waiting::Sleeping, "sleeping", ""),
        (Waiting::SleepingOnOne, "sleeping-one-core", ", all on one core"),
        (Waiting::Spinning, "spinning", ""),
    ] {
        let mut lineup = session.lineup();
        let cores = session.cores;
        let settings = match waiting {
            Waiting::Sleeping => Settings { core: None, idle: "sleep", ..session.settings() },
            Waiting::SleepingOnOne => Settings { core: Some(cores.generator), idle: "sleep", ..session.settings() },
            Waiting::Spinning => session.settings(),
        };
        for size in session.places(&SIZES) {
            lineup.add(RINGWAY, size, round_trip(Daemon::start(cores, &settings), cores, size, waiting));
            let bridge = LinuxBridge::start(cores, 2, Steering::Sender);
            lineup.add(LINUX_BRIDGE, size, round_trip(bridge, cores, size, waiting));
        }
        let heading = Heading {
            name: format!("fig12-{name}"),
            title: format!("Round trip between two {} ports against frame size{place}", waiting.name()),
            source: "VALE, figure 12",
            x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
            y: Axis { label: "round trip", ..TIME },
        };
        figures.push(session.measure("round-trip", heading, lineup)?);
    }
    Ok(figures)
}
