//! VPE end to end: two Ringway daemons as on two hosts, each with a guest and its end of a cable, against a QEMU TAP device and a Linux
//! bridge on each host, with the same guests.

use std::io;

use crate::daemon::Settings;
use crate::peers::cable::Cable;
use crate::peers::vm_bridge::VmBridge;
use crate::report::{Axis, Figure, Heading};
use crate::series::{QEMU_TAP_BRIDGE, RINGWAY};
use crate::session::Session;
use crate::vhost::with_any;
use crate::vm::{Keyed, Stream, Switches, Traffic};
use crate::vm_switch::TwoHosts;

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let settings = Settings { core: None, idle: "adaptive", ..session.settings() };
    let bridges = Cable::start().and_then(|cable| VmBridge::between_hosts(&cable));
    let switches = Switches::start(TwoHosts::start(cores, &settings), bridges, cores);
    let figures = [
        ("hosts-tcp", "TCP with segmentation left to others (TSO)", Traffic::Tcp { segments: true }, "Gbit/s"),
        ("hosts-tcp-cut", "TCP that the guests segment", Traffic::Tcp { segments: false }, "Gbit/s"),
        ("hosts-ping", "one ping after the other", Traffic::PingPong, "kping/s"),
    ];
    let mut done = Vec::new();
    for (name, what, traffic, unit) in figures {
        let mut lineup = session.lineup();
        let keyed = |coalesce: &str| {
            let key = format!("coalesce={coalesce}");
            with_any(&switches.ringway, |machines| Keyed { stream: Stream::new(machines, traffic), key })
        };
        lineup.add(RINGWAY, 1, keyed("auto"));
        if traffic == (Traffic::Tcp { segments: false }) {
            lineup.add("ringway, coalesce off", 1, keyed("off"));
        }
        lineup.add(QEMU_TAP_BRIDGE, 1, with_any(&switches.bridge, |machines| Stream::new(machines, traffic)));
        let heading = Heading {
            name: name.into(),
            title: format!("{what} between virtual machines on two hosts"),
            source: "VPE, section 5.1",
            x: Axis { label: "ways", unit: "streams", logarithmic: false },
            y: Axis { label: "rate", unit, logarithmic: false },
        };
        done.push(session.measure("hosts", heading, lineup)?);
    }
    Ok(done)
}
