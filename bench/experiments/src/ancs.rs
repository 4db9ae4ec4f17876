//! ANCS 2013, figures 1, 2 and 3: traffic of guests' sockets, with their host and with one another, by NICs of several kinds.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::extra_counts::ExtraCounts;
use crate::programs::{Compiled, SOCKETS};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm_host::{Group, Load, PerFrame, Shared, Way};
use crate::vm_nics::{BLOCK, COMBINING, COMBINING_ON_QEMU, Kind, QEMU_E1000, QEMU_VIRTIO, VIRTIO};

/// Factor by which windows are longer than those of other experiments: iperf3 counts whole seconds.
const STRETCH: u32 = 25;
/// Interrupts per second of `itr=100`, in units of 256 ns.
const ITR_100: Option<u32> = Some(40_000);
/// Without a limit: `itr=0`.
const ITR_0: Option<u32> = Some(0);

/// A row: name of the curve, NIC and driver, most interrupts per second.
type Row = (&'static str, Kind, Option<u32>);

/// Rows of figure 1. The row of Ringway leaves moderation to the driver.
const FIGURE_1: [Row; 9] = [
    (RINGWAY, BLOCK, None),
    ("itr=0 BASE", Kind::E1000, ITR_0),
    ("itr=100", Kind::E1000, ITR_100),
    ("itr=100 SC", COMBINING, ITR_100),
    ("itr=0 CSB", BLOCK, ITR_0),
    ("itr=100 CSB", BLOCK, ITR_100),
    ("ringway virtio-net", VIRTIO, None),
    ("qemu e1000", QEMU_E1000, None),
    ("qemu virtio-net", QEMU_VIRTIO, None),
];

/// Rows of figure 2: QEMU's own NICs stand for other hypervisors.
const FIGURE_2: [Row; 7] = [
    (RINGWAY, BLOCK, None),
    ("qemu e1000", QEMU_E1000, None),
    ("qemu e1000, SC", COMBINING_ON_QEMU, None),
    ("qemu e1000, unmoderated", QEMU_E1000, ITR_0),
    ("qemu e1000e", Kind::Qemu("e1000e", ""), None),
    ("qemu rtl8139", Kind::Qemu("rtl8139", ""), None),
    ("qemu virtio-net", QEMU_VIRTIO, None),
];

/// Rows of figure 3: virtio-net by its options. The row of Ringway has all that both sides offer but TSO.
const FIGURE_3: [Row; 8] = [
    (RINGWAY, VIRTIO, None),
    ("ringway, TSO", VIRTIO, None),
    ("ringway, no event index", Kind::Vhost("event_idx=off"), None),
    ("ringway, no mergeable buffers", Kind::Vhost("mrg_rxbuf=off"), None),
    ("ringway, packed", Kind::Vhost("packed=on"), None),
    ("qemu virtio-net", QEMU_VIRTIO, None),
    ("qemu virtio-net, TSO", QEMU_VIRTIO, None),
    ("qemu virtio-net, no event index", Kind::Qemu("virtio-net-pci", "event_idx=off"), None),
];

/// Rows of the papers that cannot be measured here.
const ABSENT: [(&str, &str); 4] = [
    ("kvm", "the guests of this experiment are emulated (accel=tcg)"),
    ("vhost-net", "it needs KVM and a module of the host's kernel"),
    ("vmware", "it is not free and needs modules of its own in the host's kernel"),
    ("virtualbox", "it needs modules of its own in the host's kernel"),
];

/// Columns: short name, description, load, unit.
const COLUMNS: [(&str, &str, Load, &str); 6] = [
    ("udp8", "UDP datagrams of 8 bytes", Load::Udp(8), "kframe/s"),
    ("udp1460", "UDP datagrams of 1,460 bytes", Load::Udp(1460), "kframe/s"),
    ("tcp", "TCP written by 1,460 bytes", Load::Tcp(1460), "Mbit/s"),
    ("tcpw", "TCP written by 16 KiB", Load::Tcp(16 << 10), "Mbit/s"),
    ("tcprr", "Requests and answers of one byte by TCP", Load::RoundTrips, "ktrip/s"),
    ("pktgen", "Frames of 60 bytes by pktgen, one at a time", Load::Pktgen, "kframe/s"),
];

/// Counts beside the rates: short name, what is counted for each frame that guests' NICs send or receive.
const COUNTS: [(&str, &str); 4] = [
    ("interrupts", "interrupts"),
    ("tails", "tail writes"),
    ("accesses", "register accesses"),
    ("messages", "messages"),
];

/// Measures figure 1 between a guest and its host.
///
/// # Errors
/// The cores cannot be used.
pub fn figure_1(session: &mut Session) -> io::Result<Vec<Figure>> {
    table(session, ("ancs-figure-1", "ANCS 2013, figure 1"), &FIGURE_1, &[Way::ToHost, Way::FromHost], &[1, 2])
}

/// Measures figure 1 between two guests.
///
/// # Errors
/// The cores cannot be used.
pub fn figure_1_guests(session: &mut Session) -> io::Result<Vec<Figure>> {
    table(session, ("ancs-figure-1-guests", "ANCS 2013, figure 1"), &FIGURE_1, &[Way::Guests], &[1, 2])
}

/// Measures figure 2.
///
/// # Errors
/// The cores cannot be used.
pub fn figure_2(session: &mut Session) -> io::Result<Vec<Figure>> {
    table(session, ("ancs-figure-2", "ANCS 2013, figure 2"), &FIGURE_2, &[Way::ToHost, Way::Guests], &[1, 2])
}

/// Measures figure 3.
///
/// # Errors
/// The cores cannot be used.
pub fn figure_3(session: &mut Session) -> io::Result<Vec<Figure>> {
    let ways = [Way::ToHost, Way::FromHost, Way::Guests];
    table(session, ("ancs-figure-3", "ANCS 2013, figure 3; Maffione, table 4.2"), &FIGURE_3, &ways, &[2])
}

fn table(
    session: &mut Session,
    (name, source): (&'static str, &'static str),
    rows: &[Row],
    ways: &[Way],
    cpus: &[usize],
) -> io::Result<Vec<Figure>> {
    let sockets = Compiled::of(&SOCKETS);
    let cpus = if session.options.quick { &cpus[..1] } else { cpus };
    let groups: Vec<(usize, Vec<Rc<io::Result<Shared>>>)> =
        cpus.iter().map(|&cpus| (cpus, boot_rows(session, &sockets, rows, cpus))).collect();
    let mut done = Vec::new();
    for &way in ways {
        for (short, what, load, unit) in COLUMNS {
            if way == Way::FromHost && matches!(load, Load::RoundTrips | Load::Pktgen) {
                continue;
            }
            let counts = ExtraCounts::default();
            let mut lineup = session.lineup();
            for (cpus, groups) in &groups {
                for (&(series, _, throttle), group) in rows.iter().zip(groups) {
                    let (x, counts) = (*cpus as f64, counts.clone());
                    let run = |group| Run { series, group, throttle, way, load, x, counts };
                    lineup.add(series, *cpus, with_any(group, run));
                }
            }
            for (series, why) in ABSENT {
                lineup.add_at::<Run>(series, 0.0, Err(io::Error::other(why)));
            }
            let (short_way, ends) = match way {
                Way::ToHost => ("tx", "from a guest to its host"),
                Way::FromHost => ("rx", "from the host to a guest"),
                Way::Guests => ("gg", "from a guest to another"),
            };
            let heading = Heading {
                name: format!("{name}-{short_way}-{short}"),
                title: format!("{what} {ends}"),
                source,
                x: Axis { label: "processors of a guest", unit: "", logarithmic: false },
                y: Axis { label: "rate", unit, logarithmic: false },
            };
            let figure = session.measure(name, heading.clone(), lineup)?;
            let further: Vec<Figure> = COUNTS
                .into_iter()
                .enumerate()
                .map(|(kind, (short, counted))| {
                    let y = Axis { label: counted, unit: "per frame", logarithmic: false };
                    let (name, title) = (format!("{}-{short}", heading.name), format!("{}: {counted}", heading.title));
                    counts.figure(kind, Heading { name, title, y, ..heading.clone() }, &figure)
                })
                // Of virtio-net, no accesses are counted.
                .filter(|figure| !figure.points.is_empty())
                .collect();
            done.push(figure);
            done.extend(further);
        }
    }
    Ok(done)
}

/// Boots guests for each row. Rows that differ only in what is set while guests run share them.
fn boot_rows(session: &Session, sockets: &Compiled, rows: &[Row], cpus: usize) -> Vec<Rc<io::Result<Shared>>> {
    let mut booted: Vec<Rc<io::Result<Shared>>> = Vec::new();
    for &(series, kind, throttle) in rows {
        let shares = |other: &Row| other.1 == kind && (kind.is_own() || other.2 == throttle);
        let is_wanted = rows.iter().any(|row| (row.0 == series || shares(row)) && session.options.wants(row.0));
        let group = match rows[..booted.len()].iter().position(shares) {
            Some(index) => Rc::clone(&booted[index]),
            None if is_wanted => Rc::new(sockets.path().and_then(|sockets| Group::boot(session, sockets, kind, cpus))),
            None => Rc::new(Err(io::Error::other("not asked for"))),
        };
        booted.push(group);
    }
    booted
}

/// One row at one place.
struct Run {
    series: &'static str,
    group: Shared,
    throttle: Option<u32>,
    way: Way,
    load: Load,
    x: f64,
    counts: ExtraCounts,
}

impl Run {
    fn note(&self, counted: &PerFrame) {
        self.counts.note(0, self.series, self.x, counted.interrupts);
        for (kind, value) in (1..).zip(counted.accesses.iter().flatten()) {
            self.counts.note(kind, self.series, self.x, *value);
        }
    }
}

impl Contestant for Run {
    fn resume(&mut self) -> io::Result<()> {
        self.group.borrow_mut().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.group.borrow_mut().hold()
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let mut group = self.group.borrow_mut();
        group.set_throttle(self.throttle)?;
        group.set_segments(self.series.ends_with("TSO"))?;
        let (rate, counted) = group.flow(self.way, self.load, span * STRETCH)?;
        drop(group);
        self.note(&counted);
        Ok(rate)
    }
}
