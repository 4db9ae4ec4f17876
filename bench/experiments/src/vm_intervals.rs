//! Least times between two calls of guests: fixed ones, none, and the one that follows the traffic.

use std::io;

use crate::daemon::{Daemon, Settings};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::vhost::with_any;
use crate::vm::{Booting, Keyed, Stream, Traffic};

/// Curves and their `call_interval`.
const INTERVALS: [(&str, &str); 6] = [
    (RINGWAY, "auto"),
    ("ringway, no interval", "0s"),
    ("ringway, 25 us", "25us"),
    ("ringway, 50 us", "50us"),
    ("ringway, 100 us", "100us"),
    ("ringway, 250 us", "250us"),
];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let settings = Settings { core: None, idle: "adaptive", ..session.vhost_settings() };
    let machines = Booting::start(Daemon::start(cores, &settings), cores).and_then(Booting::ready);
    let figures = [
        ("vm-intervals-pktgen", "frames of 60 bytes sent by the guest's kernel (pktgen)", Traffic::Pktgen, "kframe/s"),
        ("vm-intervals-udp", "UDP in frames of 60 bytes (iperf3)", Traffic::Udp { data: 18 }, "kframe/s"),
        ("vm-intervals-tcp", "TCP with segmentation offload", Traffic::Tcp { segments: true }, "Gbit/s"),
        ("vm-intervals-tcp-cut", "TCP that the guests segment", Traffic::Tcp { segments: false }, "Gbit/s"),
        ("vm-intervals-ping", "one ping after the other", Traffic::PingPong, "kping/s"),
    ];
    let mut done = Vec::new();
    for (name, what, traffic, unit) in figures {
        let mut lineup = session.lineup();
        for (series, interval) in INTERVALS {
            let key = format!("call_interval={interval}");
            lineup.add(
                series,
                1,
                with_any(&machines, |machines| Keyed { stream: Stream::new(machines, traffic), key }),
            );
        }
        let heading = Heading {
            name: name.into(),
            title: format!(
                "{what} between two virtual machines, with an interval between calls that follows the traffic and with fixed ones"
            ),
            source: "Maffione, section 4.3.4 and chapter 5",
            x: Axis { label: "ways", unit: "streams", logarithmic: false },
            y: Axis { label: "rate", unit, logarithmic: false },
        };
        done.push(session.measure("vm-intervals", heading, lineup)?);
    }
    Ok(done)
}
