//! What TCP between two virtual machines makes of a rate limit.

use std::io;
use std::time::Duration;

use crate::daemon::{Daemon, Settings};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm::{Booting, Keyed, Stream, Traffic};

/// Rates in Mbit/s.
const RATES: [usize; 3] = [10, 20, 100];
/// A window is this many times as long as others with guests, that is seconds.
const SECONDS: u32 = 5;
/// Curve, and the keys of both machines' ports. RATE stands for a number.
const LIMITS: [(&str, &str); 3] = [
    (RINGWAY, "ingress={rate=\"RATEMbit\"}"),
    ("ringway, drops", "ingress={rate=\"RATEMbit\",on_excess=\"drop\"}"),
    ("ringway, waits", "ingress={rate=\"RATEMbit\",on_excess=\"wait\"}"),
];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let settings = Settings { core: None, idle: "adaptive", ..session.vhost_settings() };
    let machines = Booting::start(Daemon::start(session.cores, &settings), session.cores).and_then(Booting::ready);
    let mut done = Vec::new();
    for (name, how, segments) in
        [("shaping-guests", "left to others (TSO)", true), ("shaping-guests-cut", "done by the guests", false)]
    {
        let mut lineup = session.lineup();
        for rate in session.places(&RATES) {
            for (series, key) in LIMITS {
                let key = key.replace("RATE", &rate.to_string());
                let limited = with_any(&machines, |machines| {
                    let stream = Stream::new(machines, Traffic::Tcp { segments });
                    Part { inner: Keyed { stream, key }, gigabits: rate as f64 / 1000.0 }
                });
                lineup.add(series, rate, limited);
            }
        }
        let heading = Heading {
            name: name.into(),
            title: format!("What TCP between two virtual machines gets of a limit, segmentation {how}"),
            source: "fairness paper, section 4.3",
            x: Axis { label: "limit", unit: "Mbit/s", logarithmic: true },
            y: Axis { label: "part of the limit", unit: "times", logarithmic: false },
        };
        done.push(session.measure("shaping-guests", heading, lineup)?);
    }
    Ok(done)
}

/// A rate as a part of a limit.
struct Part {
    inner: Keyed<Daemon>,
    gigabits: f64,
}

impl Contestant for Part {
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
        Ok(self.inner.window(span * SECONDS)? / self.gigabits)
    }
}
