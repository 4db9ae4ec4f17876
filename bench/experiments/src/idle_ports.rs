//! Rate between two ports against the number of attached idle ports.

use std::io;
use std::time::Duration;

use ringway_traffic::ProcessEndpoint;

use crate::daemon::Daemon;
use crate::network::Forwarding;
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};
use crate::trial::Contestant;

/// Numbers of idle ports; the sender and the receiver come on top.
const IDLE_PORTS: [usize; 7] = [1, 4, 16, 64, 256, 512, 1024];

struct WithIdlePorts {
    forwarding: Forwarding<Daemon>,
    _idle: Vec<ProcessEndpoint>,
}

impl Contestant for WithIdlePorts {
    fn resume(&mut self) -> io::Result<()> {
        self.forwarding.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.forwarding.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        self.forwarding.window(span)
    }
}

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    let cores = session.cores;
    for count in session.places(&IDLE_PORTS) {
        lineup.anchor(count, 60);
        // A switch with two ports only, at each place: the ratio to it is the cost of the idle ports.
        lineup.ringway("two ports only", count, &session.settings(), &one_to_one(60));
        let crowded = Daemon::start(cores, &session.settings()).and_then(|mut daemon| {
            let idle = daemon.attach_idle(count)?;
            Ok(WithIdlePorts { forwarding: Forwarding::new(daemon, cores, one_to_one(60))?, _idle: idle })
        });
        lineup.add(RINGWAY, count, crowded);
    }
    let heading = Heading {
        name: "idle-ports".into(),
        title: "Rate between two ports against number of idle ports, frames of 60 bytes".into(),
        source: "VALE, section 3.3; VPE, hierarchical flags",
        x: Axis { label: "idle ports", unit: "ports", logarithmic: true },
        y: RATE,
    };
    Ok(vec![session.measure("idle-ports", heading, lineup)?])
}
