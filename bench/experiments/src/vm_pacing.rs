//! Adaptive pacing with Linux guests: UDP in the smallest frames, and TCP, with pacing and without.

use std::io;

use crate::daemon::{Daemon, Settings};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::vhost::with_any;
use crate::vm::{Booting, Stream, Traffic};

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let start = |pacing: &'static str| {
        let settings = Settings { core: None, idle: "adaptive", pacing, ..session.vhost_settings() };
        Booting::start(Daemon::start(cores, &settings), cores)
    };
    let [paced, unpaced] = ["adaptive", "off"].map(start).map(|booting| booting.and_then(Booting::ready));
    let figures = [
        ("vm-pacing-pktgen", "frames of 60 bytes sent by the guest's kernel (pktgen)", Traffic::Pktgen, "kframe/s"),
        ("vm-pacing-udp", "UDP in frames of 60 bytes (iperf3)", Traffic::Udp { data: 18 }, "kframe/s"),
        ("vm-pacing-tcp", "TCP with segmentation offload", Traffic::Tcp { segments: true }, "Gbit/s"),
    ];
    let mut done = Vec::new();
    for (name, what, traffic, unit) in figures {
        let mut lineup = session.lineup();
        lineup.add(RINGWAY, 1, with_any(&paced, |machines| Stream::new(machines, traffic)));
        lineup.add("ringway, pacing off", 1, with_any(&unpaced, |machines| Stream::new(machines, traffic)));
        let heading = Heading {
            name: name.into(),
            title: format!("{what} between two virtual machines, with adaptive pacing and without"),
            source: "VPE, section 4.2",
            x: Axis { label: "ways", unit: "streams", logarithmic: false },
            y: Axis { label: "rate", unit, logarithmic: false },
        };
        done.push(session.measure("vm-pacing", heading, lineup)?);
    }
    Ok(done)
}
