//! Unmodified Linux drivers that send or receive frames of 60 bytes: the rates of frames, interrupts, tail writes and register
//! accesses of Ringway's e1000s, against virtio-net and QEMU's own NICs.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::critical::{self, COARSE, LADDER};
use crate::extra_counts::ExtraCounts;
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm_nics::{
    AUTO, BLOCK, COMBINING, COMBINING_ON_QEMU, Counted, Kind, QEMU_E1000, QEMU_VIRTIO, REGISTERS, Shared, Station,
    VIRTIO,
};

/// Factor by which windows are longer than those of other experiments.
const STRETCH: u32 = 25;
/// Part of a window for which one rate is offered to a receiver.
const PART: u32 = 4;
/// Bytes of a frame.
const SIZE: usize = 60;
/// Axis of guests' rates.
const RATE: Axis = Axis { label: "rate", unit: "kframe/s", logarithmic: false };
/// Most interrupts per second of moderated rows, as in the thesis.
const MODERATED: Option<u32> = Some(4000);
/// Rows of the tables: name of the curve, NIC, most interrupts per second; `None` leaves that to the driver.
const ROWS: [(&str, Kind, Option<u32>); 19] = [
    (RINGWAY, Kind::E1000, MODERATED),
    ("ringway, unmoderated", Kind::E1000, Some(0)),
    ("own driver, registers", REGISTERS, MODERATED),
    ("own driver, registers, unmoderated", REGISTERS, Some(0)),
    ("own driver, combining", COMBINING, MODERATED),
    ("own driver, combining, unmoderated", COMBINING, Some(0)),
    ("own driver, auto", AUTO, None),
    ("own driver, status block", BLOCK, MODERATED),
    ("own driver, status block, unmoderated", BLOCK, Some(0)),
    ("own driver, status block, adaptive", BLOCK, None),
    ("ringway e1000e, mapped", Kind::Mapped, MODERATED),
    ("ringway e1000e, trapped", Kind::Trapped, MODERATED),
    ("ringway virtio-net", VIRTIO, None),
    ("ringway virtio-net, moderated", Kind::VhostModerated, None),
    ("qemu e1000", QEMU_E1000, MODERATED),
    ("qemu e1000, unmoderated", QEMU_E1000, Some(0)),
    ("qemu virtio-net", QEMU_VIRTIO, None),
    ("ringway e1000e, mapped, unmoderated", Kind::Mapped, Some(0)),
    ("own driver on qemu e1000, combining", COMBINING_ON_QEMU, Some(0)),
];

/// Rows of a guest that fills an empty ring: name of the curve, whether the switch works or is stopped.
const FILLED: [(&str, bool); 2] =
    [("ringway e1000e, mapped, to fill", true), ("ringway e1000e, mapped, to fill, switch stopped", false)];

/// Direction of the frames, and value of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From the guest: the rate at which it sends.
    Transmit,
    /// To the guest: the critical rate, searched on this ladder.
    Receive(&'static [u64]),
    /// To the guest: what arrives of this many frames per second.
    Offered(u64),
}

/// Counts beside the frames, in the order of the figures: short name, description, unit.
const COUNTS: [(&str, &str, &str); 7] = [
    ("interrupts", "interrupts", "kHz"),
    ("tails", "tail writes by message", "kHz"),
    ("writes", "register writes by message", "kHz"),
    ("reads", "register reads by message", "kHz"),
    ("messages", "messages", "per frame"),
    ("interrupts-frame", "interrupts", "per frame"),
    ("tails-frame", "tail writes by message", "per frame"),
];

/// Measures tables 3.1 and 4.1.
///
/// # Errors
/// The cores cannot be used.
pub fn transmit(session: &mut Session) -> io::Result<Vec<Figure>> {
    let what = "a guest's kernel sends, one at a time (pktgen)";
    let source = "Maffione, tables 3.1 and 4.1; ANCS 2013, figure 1";
    table(session, Direction::Transmit, "e1000-transmit", what, source)
}

/// Measures tables 3.2 and 4.3.
///
/// # Errors
/// The cores cannot be used.
pub fn receive(session: &mut Session) -> io::Result<Vec<Figure>> {
    let what = "a guest's kernel receives, at the highest rate without loss";
    let direction = Direction::Receive(ladder(session));
    table(session, direction, "e1000-receive", what, "Maffione, tables 3.2 and 4.3")
}

/// Measures figure 3.4.
///
/// # Errors
/// The cores cannot be used.
pub fn moderation(session: &mut Session) -> io::Result<Vec<Figure>> {
    let places = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000];
    moderated(
        session,
        Direction::Transmit,
        &places,
        "e1000-moderation",
        "Frames that a guest's kernel sends",
        "Maffione, figure 3.4",
    )
}

/// Measures figure 3.5.
///
/// # Errors
/// The cores cannot be used.
pub fn critical(session: &mut Session) -> io::Result<Vec<Figure>> {
    let (direction, places) = (Direction::Receive(ladder(session)), [1_000, 2_000, 4_000, 8_000, 32_000]);
    moderated(
        session,
        direction,
        &places,
        "e1000-critical",
        "Frames that a guest receives without loss",
        "Maffione, figure 3.5",
    )
}

fn moderated(
    session: &mut Session,
    direction: Direction,
    places: &[usize],
    name: &'static str,
    what: &str,
    source: &'static str,
) -> io::Result<Vec<Figure>> {
    let kinds = [
        (RINGWAY, Kind::E1000),
        ("own driver, registers", REGISTERS),
        ("own driver, combining", COMBINING),
        ("own driver, status block", BLOCK),
        ("ringway e1000e, mapped", Kind::Mapped),
        ("qemu e1000", QEMU_E1000),
    ];
    let stations = kinds.map(|(series, kind)| (series, Station::boot(session, &[series], kind, 1)));
    let mut lineup = session.lineup();
    for most in session.places(places) {
        for (series, station) in &stations {
            let (throttle, x, extra_counts) = (Some(most as u32), most as f64, ExtraCounts::default());
            let contestant = with_any(station, |station| Run { series, station, direction, throttle, x, extra_counts });
            lineup.add(series, most, contestant);
        }
    }
    let heading = Heading {
        name: name.into(),
        title: format!("{what} against the most interrupts per second"),
        source,
        x: Axis { label: "most interrupts", unit: "1/s", logarithmic: true },
        y: RATE,
    };
    Ok(vec![session.measure(name, heading, lineup)?])
}

/// Boots a guest with `cpus` processors for each of [`ROWS`]. Rows of our own driver with the same parameters share one, as its
/// moderation is set while it runs.
fn boot_rows(session: &Session, cpus: usize) -> Vec<Rc<io::Result<Shared>>> {
    let mut booted: Vec<Rc<io::Result<Shared>>> = Vec::new();
    for (series, kind, _) in ROWS {
        let shares = |other: &Kind| kind.is_own() && *other == kind;
        let curves: Vec<&str> =
            ROWS.iter().filter(|(name, other, _)| *name == series || shares(other)).map(|(name, ..)| *name).collect();
        let same = ROWS[..booted.len()].iter().position(|(_, other, _)| shares(other));
        let station = match same {
            Some(index) => Rc::clone(&booted[index]),
            None => Rc::new(Station::boot(session, &curves, kind, cpus)),
        };
        booted.push(station);
    }
    booted
}

/// Rates among which the critical rate is searched.
fn ladder(session: &Session) -> &'static [u64] {
    if session.options.quick { &COARSE } else { &LADDER }
}

/// Measures figure 3.3: what guests with one processor receive of a rising rate.
///
/// # Errors
/// The cores cannot be used.
pub fn overload(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    let stations = boot_rows(session, 1);
    for offered in session.places(&[8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000]) {
        for ((series, _, throttle), station) in ROWS.into_iter().zip(&stations) {
            let (direction, x, extra_counts) =
                (Direction::Offered(offered as u64), offered as f64 / 1e3, ExtraCounts::default());
            let run = with_any(station, |station| Run { series, station, direction, throttle, x, extra_counts });
            lineup.add_at(series, x, run);
        }
    }
    let heading = Heading {
        name: "e1000-overload".into(),
        title: "Frames of 60 bytes that a guest's kernel receives of those it is sent".into(),
        source: "Maffione, figure 3.3",
        x: Axis { label: "offered", unit: "kframe/s", logarithmic: true },
        y: RATE,
    };
    Ok(vec![session.measure("e1000-overload", heading, lineup)?])
}

fn table(
    session: &mut Session,
    direction: Direction,
    name: &'static str,
    what: &str,
    source: &'static str,
) -> io::Result<Vec<Figure>> {
    let extra_counts = ExtraCounts::default();
    let mut lineup = session.lineup();
    for cpus in [1, 2] {
        for ((series, _, throttle), station) in ROWS.into_iter().zip(boot_rows(session, cpus)) {
            let (x, extra_counts) = (cpus as f64, extra_counts.clone());
            let run = with_any(&station, |station| Run { series, station, direction, throttle, x, extra_counts });
            lineup.add(series, cpus, run);
        }
        if direction == Direction::Transmit {
            let station = Station::boot(session, &FILLED.map(|(series, _)| series), Kind::Mapped, cpus);
            for (series, served) in FILLED {
                lineup.add(series, cpus, with_any(&station, |station| RingFill { station, served }));
            }
        }
        if session.options.quick {
            break;
        }
    }
    let x = Axis { label: "processors of the guest", unit: "", logarithmic: false };
    let heading = Heading { name: name.into(), title: format!("Frames of 60 bytes that {what}"), source, x, y: RATE };
    let mut figures = vec![session.measure(name, heading.clone(), lineup)?];
    for (kind, (short, counted, unit)) in COUNTS.into_iter().enumerate() {
        let heading = Heading {
            name: format!("{name}-{short}"),
            title: format!("While {what}: {counted}"),
            y: Axis { label: counted, unit, logarithmic: false },
            ..heading.clone()
        };
        figures.push(extra_counts.figure(kind, heading, &figures[0]));
    }
    Ok(figures)
}

/// One row at one place, in thousand frames per second.
struct Run {
    series: &'static str,
    station: Shared,
    direction: Direction,
    throttle: Option<u32>,
    x: f64,
    extra_counts: ExtraCounts,
}

impl Run {
    fn note(&self, counted: &Counted) {
        let note = |kind, value| self.extra_counts.note(kind, self.series, self.x, value);
        note(0, counted.interrupts / 1e3);
        note(5, counted.interrupts / counted.frames);
        if let Some(accesses) = counted.accesses {
            note(1, accesses.tails / 1e3);
            note(2, accesses.writes / 1e3);
            note(3, accesses.reads / 1e3);
            note(4, accesses.messages / counted.frames);
            note(6, accesses.tails / counted.frames);
        }
    }
}

impl Contestant for Run {
    fn resume(&mut self) -> io::Result<()> {
        self.station.borrow_mut().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.station.borrow_mut().hold()
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let mut station = self.station.borrow_mut();
        station.set_throttle(self.throttle)?;
        let span = span * STRETCH;
        let counted = match self.direction {
            Direction::Transmit => station.transmit(SIZE, span)?,
            Direction::Receive(ladder) => {
                let offer = |rate| station.receive(SIZE, rate, span / PART).map(|offer| (offer, offer.arrived()));
                critical::search(ladder, offer)?.seen.counted
            }
            Direction::Offered(rate) => station.receive(SIZE, rate, span / PART)?.counted,
        };
        drop(station);
        self.note(&counted);
        Ok(counted.frames / 1e3)
    }
}

/// The rate at which a guest's kernel fills a ring, in thousand frames per second.
struct RingFill {
    station: Shared,
    served: bool,
}

impl Contestant for RingFill {
    fn resume(&mut self) -> io::Result<()> {
        self.station.borrow_mut().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.station.borrow_mut().hold()
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, _: Duration) -> io::Result<f64> {
        Ok(self.station.borrow_mut().fill(SIZE, self.served)? / 1e3)
    }
}
