//! VALE, section 5.1, footnote 6: how fast the switch drops, against how fast it forwards.
//!
//! Dropped are frames above a limit (of which a few pass), frames between two isolated ports, and frames to an address a `map` switch does not know. Counted is what the switch took.

use std::io;

use crate::daemon::{Daemon, Settings};
use crate::network::{Destination, Forwarding, Load};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::session::{RINGWAY, Session, one_to_one};

const SIZES: [usize; 2] = [60, 1514];

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    let cores = session.cores;
    for frame_len in SIZES {
        let load = one_to_one(frame_len);
        lineup.anchor(frame_len, frame_len);
        lineup.ringway(RINGWAY, frame_len, &session.settings(), &load);
        let unknown = Load { to: Destination::Unknown, ..load.clone() };
        let isolated = Load { to: Destination::Bound, ..load.clone() };
        let map = Settings { forwarding: "map", ..session.settings() };
        // Its sender floods a thousand times what it may send.
        let keys = vec![String::from("ingress = { rate = \"1Mbit\" }")];
        let limited = Settings { keys, ..session.settings() };
        let keys = vec![String::new(), String::from("egress = { rate = \"1Mbit\" }")];
        let receiver_limited = Settings { keys, ..session.settings() };
        for (series, settings, load) in [
            ("drops: above a limit", limited, load.clone()),
            ("drops: above the receiver's limit", receiver_limited, load.clone()),
            ("drops: isolated", Settings { isolated: true, ..map.clone() }, isolated),
            ("drops: unknown in map", map, unknown),
        ] {
            let daemon = Daemon::start(cores, &settings);
            let contestant = daemon.and_then(|daemon| Forwarding::new(daemon, cores, load));
            lineup.add(series, frame_len, contestant.map(Forwarding::counting_sent));
        }
    }
    let heading = Heading {
        name: "drop-rate".into(),
        title: "Frames dropped at the switch against frames forwarded".into(),
        source: "VALE, section 5.1",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y: RATE,
    };
    Ok(vec![session.measure("drop-rate", heading, lineup)?])
}
