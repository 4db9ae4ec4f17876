//! TCP between two guests with e1000s of Ringway's, against QEMU's own e1000s on TAP devices and a Linux bridge.

use std::io;

use crate::daemon::{Daemon, Settings};
use crate::peers::vm_bridge::VmBridge;
use crate::report::{Axis, Figure, Heading};
use crate::session::{RINGWAY, Session};
use crate::vhost::with_any;
use crate::vm::{Booting, Stream, Traffic};

/// Name of the peer's curve.
const QEMU: &str = "qemu e1000, linux bridge";

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let settings = |keys| Settings { core: None, idle: "adaptive", e1000: Some(keys), ..session.settings() };
    let ours = ["csb = false", "model = \"e1000e\"\nregisters = \"mapped\""]
        .map(|keys| Booting::start(Daemon::start(cores, &settings(keys)), cores));
    let theirs = Booting::start(VmBridge::start().map(|bridge| bridge.model("e1000")), cores);
    let [ours, express] = ours.map(|booting| booting.and_then(Booting::ready));
    let theirs = theirs.and_then(Booting::ready);
    let figures = [
        ("e1000-tcp", "segmentation left to the device, one and both ways at once", true),
        ("e1000-tcp-cut", "segmentation by the guests", false),
    ];
    let mut done = Vec::new();
    for (name, how, segments) in figures {
        let mut lineup = session.lineup();
        let loads: &[Traffic] =
            if segments { &[Traffic::Tcp { segments }, Traffic::TcpBothWays] } else { &[Traffic::Tcp { segments }] };
        for (&traffic, ways) in loads.iter().zip(1..) {
            lineup.add(RINGWAY, ways, with_any(&ours, |machines| Stream { machines, traffic }));
            lineup.add("ringway e1000e, mapped", ways, with_any(&express, |machines| Stream { machines, traffic }));
            lineup.add(QEMU, ways, with_any(&theirs, |machines| Stream { machines, traffic }));
        }
        let heading = Heading {
            name: name.into(),
            title: format!("TCP between two guests with e1000s, {how}"),
            source: "ANCS 2013, figure 1",
            x: Axis { label: "ways", unit: "streams", logarithmic: false },
            y: Axis { label: "rate", unit: "Gbit/s", logarithmic: false },
        };
        done.push(session.measure("e1000-tcp", heading, lineup)?);
    }
    Ok(done)
}
