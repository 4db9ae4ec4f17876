//! TCP and UDP between two guests with Ringway's e1000s, against QEMU's own e1000s on TAP devices and a Linux bridge, and virtio-net
//! of both.

use std::io;

use crate::daemon::{Daemon, Settings};
use crate::peers::vm_bridge::VmBridge;
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::vhost::with_any;
use crate::vm::{Booting, Stream, Traffic};

/// Names of the peers' curves.
const QEMU: &str = "qemu e1000, linux bridge";
const QEMU_VIRTIO: &str = "qemu virtio-net, linux bridge";

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let usual = Settings { core: None, idle: "adaptive", ..session.settings() };
    let e1000 = |keys| Settings { e1000: Some(keys), ..usual.clone() };
    let kinds = [
        (RINGWAY, e1000("csb = false")),
        ("ringway e1000e, mapped", e1000("model = \"e1000e\"\nregisters = \"mapped\"")),
        ("ringway virtio-net", Settings { vhost_user: 2, ..usual.clone() }),
    ];
    let wants = |series: &&str| session.options.wants(series);
    let unwanted = || io::Error::other("not asked for");
    let ours = kinds.map(|(series, settings)| {
        let daemon = if wants(&series) { Daemon::start(cores, &settings) } else { Err(unwanted()) };
        (series, Booting::start(daemon, cores))
    });
    let theirs = [(QEMU, Some("e1000")), (QEMU_VIRTIO, None)].map(|(series, model)| {
        let bridge = if wants(&series) { VmBridge::start() } else { Err(unwanted()) };
        let bridge = bridge.map(|bridge| if let Some(model) = model { bridge.model(model) } else { bridge });
        (series, Booting::start(bridge, cores))
    });
    let ours = ours.map(|(series, booting)| (series, booting.and_then(Booting::ready)));
    let theirs = theirs.map(|(series, booting)| (series, booting.and_then(Booting::ready)));
    let whole = Traffic::Tcp { segments: true };
    let ways = Axis { label: "ways", unit: "streams", logarithmic: false };
    let rate = Axis { label: "rate", unit: "Gbit/s", logarithmic: false };
    let figures = [
        (
            "e1000-tcp",
            "TCP between two guests, segmentation left to the device, one and both ways at once",
            (ways, rate),
            vec![(1, whole), (2, Traffic::TcpBothWays)],
        ),
        (
            "e1000-tcp-cut",
            "TCP between two guests, segmentation by the guests",
            (ways, rate),
            vec![(1, Traffic::Tcp { segments: false })],
        ),
        (
            "e1000-tcp-writes",
            "TCP between two guests, written by so many bytes, segmentation left to the device",
            (Axis { label: "write", unit: "bytes", logarithmic: true }, rate),
            vec![(1460, Traffic::TcpShortWrites), (128 << 10, whole)],
        ),
        (
            "e1000-udp",
            "UDP between two guests, datagrams with so many bytes of data",
            (
                Axis { label: "data", unit: "bytes", logarithmic: true },
                Axis { label: "rate", unit: "kframe/s", logarithmic: false },
            ),
            [18, 1460].map(|data| (data, Traffic::Udp { data })).to_vec(),
        ),
    ];
    let mut done = Vec::new();
    for (name, title, (x, y), loads) in figures {
        let mut lineup = session.lineup();
        for (place, traffic) in loads {
            for (series, machines) in &ours {
                lineup.add(series, place, with_any(machines, |machines| Stream::new(machines, traffic)));
            }
            for (series, machines) in &theirs {
                lineup.add(series, place, with_any(machines, |machines| Stream::new(machines, traffic)));
            }
        }
        let heading = Heading { name: name.into(), title: title.into(), source: "ANCS 2013, figure 1", x, y };
        done.push(session.measure("e1000-tcp", heading, lineup)?);
    }
    Ok(done)
}
