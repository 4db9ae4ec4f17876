//! Rate at which the switch drops frames, against the rate at which it forwards them (VALE, section 5.1, footnote 6).
//!
//! The switch drops frames above a limit of the sender or of the receiver (a few pass), frames between two isolated ports, and frames
//! to an address that a `map` switch does not know. The frames that the switch took are counted.

use std::io;

use ringway_traffic::Mac;

use crate::daemon::{Daemon, RingwayNetwork, Settings, VhostUser};
use crate::network::{Destination, Forwarding, Load, SENDER};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};

const SIZES: [usize; 2] = [60, 1514];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    Ok(vec![figure::<Daemon>(session)?, figure::<VhostUser>(session)?])
}

fn figure<N: RingwayNetwork>(session: &mut Session) -> io::Result<Figure> {
    let mut lineup = session.lineup();
    let cores = session.cores;
    for frame_len in SIZES {
        let load = one_to_one(frame_len);
        lineup.anchor(frame_len, frame_len);
        let start = |settings: &Settings, load| {
            N::with_ports(cores, settings, 2).and_then(|network| Forwarding::new(network, cores, load))
        };
        lineup.add(RINGWAY, frame_len, start(&session.settings(), load.clone()));
        let unknown = Load { to: Destination::Unknown, ..load.clone() };
        let isolated = Load { to: Destination::Bound, ..load.clone() };
        let map = Settings { forwarding: "\"map\"".into(), ..session.settings() };
        // The sender floods with a thousand times the rate of its limit.
        let keys = vec![String::from("ingress = { rate = \"1Mbit\", on_excess = \"drop\" }")];
        let limited = Settings { keys, ..session.settings() };
        let keys = vec![String::new(), String::from("egress = { rate = \"1Mbit\", on_excess = \"drop\" }")];
        let receiver_limited = Settings { keys, ..session.settings() };
        let apart = |number| format!("isolated = true\nmac = [\"{}\"]", Mac::local(SENDER + number));
        for (series, settings, load) in [
            ("drops: above a limit", limited, load.clone()),
            ("drops: above the receiver's limit", receiver_limited, load.clone()),
            ("drops: isolated", Settings { keys: vec![apart(0), apart(1)], ..map.clone() }, isolated),
            ("drops: unknown in map", map, unknown),
        ] {
            lineup.add(series, frame_len, start(&settings, load).map(Forwarding::counting_sent));
        }
    }
    let heading = Heading {
        name: format!("drop-rate{}", N::SUFFIX),
        title: format!("Frames dropped at the switch against frames forwarded, {}", N::PORTS),
        source: "VALE, section 5.1",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y: RATE,
    };
    session.measure("drop-rate", heading, lineup)
}
