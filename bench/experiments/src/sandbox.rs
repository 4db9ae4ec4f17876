//! What keeper and sandbox cost the path of a frame: the switch as users start it, beside the same in one process that has given nothing up.

use std::io;

use ringway_traffic::{Split, VirtioOptions};

use crate::daemon::{Daemon, Settings};
use crate::network::Waiting;
use crate::report::{Axis, Figure, Heading, RATE, TIME};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one, round_trip};
use crate::vhost::{self, Saturation, pair};

const SIZES: [usize; 2] = [60, 1514];
/// The curve without keeper and sandbox (`--no-keeper`).
const ALONE: &str = "ringway, one process";
const SOURCE: &str = "SECURITY.md";

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let both = |settings: Settings| {
        [(RINGWAY, true), (ALONE, false)].map(|(series, is_kept)| (series, Settings { is_kept, ..settings.clone() }))
    };
    let heading = |name: &str, title: &str, y| Heading {
        name: format!("sandbox-{name}"),
        title: title.into(),
        source: SOURCE,
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y,
    };

    let mut lineup = session.lineup();
    for size in SIZES {
        lineup.anchor(size, size);
        for (series, settings) in both(session.settings()) {
            lineup.ringway(series, size, &settings, &one_to_one(size));
        }
    }
    let rate =
        session.measure("sandbox", heading("rate", "One sender to one receiver, process ports", RATE), lineup)?;

    let mut lineup = session.lineup();
    for (waiting, place) in [(Waiting::Spinning, 0), (Waiting::Sleeping, 1)] {
        let idle =
            if place == 0 { session.settings() } else { Settings { core: None, idle: "sleep", ..session.settings() } };
        for (series, settings) in both(idle) {
            lineup.add(series, place, round_trip(Daemon::start(cores, &settings), cores, SIZES[0], waiting));
        }
    }
    let ways = Axis { label: "way", unit: "0: spinning, 1: sleeping", logarithmic: false };
    let round = heading("round-trip", "Round trip of 60 bytes, process ports", Axis { label: "round trip", ..TIME });
    let round = session.measure("sandbox", Heading { x: ways, ..round }, lineup)?;

    let mut lineup = session.lineup();
    let options = VirtioOptions::default();
    for (series, settings) in both(session.vhost_settings()) {
        let pair = pair::<Daemon, Split>(Daemon::start(cores, &settings), cores, &options);
        for size in SIZES {
            let load = vhost::Load { sizes: vec![size.max(64)], both: false, tcp: false, broadcasts: false };
            lineup.add(series, size.max(64), vhost::with(&pair, |pair| Saturation { pair, load }));
        }
    }
    let vhost =
        session.measure("sandbox", heading("vhost", "Forwarding between two vhost-user ports", RATE), lineup)?;
    Ok(vec![rate, round, vhost])
}
