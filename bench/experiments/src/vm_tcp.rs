//! TCP between two guests through Ringway, against QEMU's TAP devices on a Linux bridge, with the same guests.

use std::io;
use std::rc::Rc;

use crate::daemon::{Daemon, Settings};
use crate::peers::vm_bridge::VmBridge;
use crate::report::{Axis, Figure, Heading};
use crate::series::{QEMU_TAP_BRIDGE, RINGWAY};
use crate::session::Session;
use crate::vhost::with_any;
use crate::vm::{IdlePoller, Keyed, Stream, Switches, Traffic};

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let settings = Settings { core: None, idle: "adaptive", ..session.vhost_settings() };
    let switches = Switches::start(Daemon::start(session.cores, &settings), VmBridge::start(), session.cores);
    let figures = [
        ("vm-tcp", "left to others (TSO)", &[Traffic::Tcp { segments: true }, Traffic::TcpBothWays][..]),
        ("vm-tcp-cut", "done by the guests", &[Traffic::Tcp { segments: false }][..]),
    ];
    let mut done = Vec::new();
    for (name, how, loads) in figures {
        let mut lineup = session.lineup();
        for (&traffic, ways) in loads.iter().zip(1..) {
            let keyed = |coalesce: &str| {
                let key = format!("coalesce={coalesce}");
                with_any(&switches.ringway, |machines| Keyed { stream: Stream::new(machines, traffic), key })
            };
            lineup.add(RINGWAY, ways, keyed("auto"));
            if name == "vm-tcp-cut" {
                lineup.add("ringway, coalesce off", ways, keyed("off"));
            }
            lineup.add(QEMU_TAP_BRIDGE, ways, with_any(&switches.bridge, |machines| Stream::new(machines, traffic)));
        }
        let heading = Heading {
            name: name.into(),
            title: format!("TCP between two virtual machines, one and both ways at once, segmentation {how}"),
            source: "VPE, section 5.1",
            x: Axis { label: "ways", unit: "streams", logarithmic: false },
            y: Axis { label: "rate", unit: "Gbit/s", logarithmic: false },
        };
        done.push(session.measure("vm-tcp", heading, lineup)?);
    }
    let mut lineup = session.lineup();
    lineup.add(RINGWAY, 2, with_any(&switches.ringway, |machines| IdlePoller { machines: Rc::clone(&machines) }));
    let heading = Heading {
        name: "vm-idle".into(),
        title: "Share of the poller's time that is busy while two virtual machines have nothing to say".into(),
        source: "VPE, section 4.4",
        x: Axis { label: "machines", unit: "ports", logarithmic: false },
        y: Axis { label: "busy", unit: "%", logarithmic: false },
    };
    done.push(session.measure("vm-tcp", heading, lineup)?);
    Ok(done)
}
