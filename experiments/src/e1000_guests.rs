//! Unmodified Linux drivers, frames of 60 bytes: the rates of frames, interrupts, tail writes and register accesses of e1000s
//! of ours, beside virtio-net and QEMU's own.

use std::io;
use std::time::Duration;

use crate::beside::Beside;
use crate::report::{Axis, Figure, Heading};
use crate::session::{RINGWAY, Session};
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm_nics::{Counted, Kind, Shared, Station};

/// A window is so many ordinary ones.
const STRETCH: u32 = 25;
/// Bytes of a frame.
const SIZE: usize = 60;
/// Most interrupts per second where they are moderated, as in the thesis.
const MODERATED: u32 = 4000;
/// Frames per second that a receiver is offered, one rate after the other; it ends where less arrives than before.
const OFFERED: [u64; 7] = [8_000, 16_000, 32_000, 64_000, 96_000, 128_000, 192_000];

/// What is measured: its curve, its NIC, and the most interrupts per second.
const ROWS: [(&str, Kind, u32); 9] = [
    (RINGWAY, Kind::E1000, MODERATED),
    ("ringway, unmoderated", Kind::E1000, 0),
    ("ringway e1000e, mapped", Kind::Mapped, MODERATED),
    ("ringway e1000e, trapped", Kind::Trapped, MODERATED),
    ("ringway virtio-net", Kind::Vhost, 0),
    ("qemu e1000", Kind::QemuE1000, MODERATED),
    ("qemu e1000, unmoderated", Kind::QemuE1000, 0),
    ("qemu virtio-net", Kind::QemuVirtio, 0),
    ("ringway e1000e, mapped, unmoderated", Kind::Mapped, 0),
];

/// Which way frames go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Transmit,
    Receive,
}

/// What is counted beside the frames, in the order of the figures: short name, what, unit.
const COUNTS: [(&str, &str, &str); 5] = [
    ("interrupts", "interrupts", "kHz"),
    ("tails", "tail writes by message", "kHz"),
    ("writes", "register writes by message", "kHz"),
    ("reads", "register reads by message", "kHz"),
    ("messages", "messages", "per frame"),
];

/// Tables 3.1 and 4.1.
///
/// # Errors
/// The cores cannot be used.
pub fn transmit(session: &mut Session) -> io::Result<Vec<Figure>> {
    let what = "a guest's kernel sends, one at a time (pktgen)";
    table(session, Way::Transmit, "e1000-transmit", what, "Maffione, tables 3.1 and 4.1; ANCS 2013, figure 1")
}

/// Tables 3.2, 3.3 and 4.3.
///
/// # Errors
/// The cores cannot be used.
pub fn receive(session: &mut Session) -> io::Result<Vec<Figure>> {
    let what = "a program in a guest receives (UDP), at the critical rate";
    table(session, Way::Receive, "e1000-receive", what, "Maffione, tables 3.2, 3.3 and 4.3")
}

/// Figures 3.4 and 3.5.
///
/// # Errors
/// The cores cannot be used.
pub fn moderation(session: &mut Session) -> io::Result<Vec<Figure>> {
    let kinds = [(RINGWAY, Kind::E1000), ("ringway e1000e, mapped", Kind::Mapped), ("qemu e1000", Kind::QemuE1000)];
    let stations = kinds.map(|(series, kind)| (series, Station::boot(session, kind, 1)));
    let ways = [
        (Way::Transmit, "e1000-moderation-transmit", "Frames that a guest's kernel sends", "Maffione, figure 3.4"),
        (Way::Receive, "e1000-moderation-receive", "Critical rate of a program in a guest", "Maffione, figure 3.5"),
    ];
    let mut figures = Vec::new();
    for (way, name, what, source) in ways {
        let mut lineup = session.lineup();
        for most in session.places(&[1_000, 2_000, 4_000, 8_000, 16_000, 32_000]) {
            for (series, station) in &stations {
                let contestant = with_any(station, |station| Run {
                    series,
                    station,
                    way,
                    throttle: most as u32,
                    x: most as f64,
                    beside: Beside::default(),
                });
                lineup.add(series, most, contestant);
            }
        }
        let heading = Heading {
            name: name.into(),
            title: format!("{what} against the most interrupts per second"),
            source,
            x: Axis { label: "most interrupts", unit: "1/s", logarithmic: true },
            y: Axis { label: "rate", unit: "kframe/s", logarithmic: false },
        };
        figures.push(session.measure("e1000-moderation", heading, lineup)?);
    }
    Ok(figures)
}

fn table(
    session: &mut Session,
    way: Way,
    name: &'static str,
    what: &str,
    source: &'static str,
) -> io::Result<Vec<Figure>> {
    let beside = Beside::default();
    let mut lineup = session.lineup();
    for cpus in [1, 2] {
        let mut booted: Vec<(Kind, io::Result<Shared>)> = Vec::new();
        for (series, kind, throttle) in ROWS {
            if !booted.iter().any(|(other, _)| *other == kind) {
                booted.push((kind, Station::boot(session, kind, cpus)));
            }
            let Some((_, station)) = booted.iter().find(|(other, _)| *other == kind) else { continue };
            let (x, beside) = (cpus as f64, beside.clone());
            let run = with_any(station, |station| Run { series, station, way, throttle, x, beside });
            lineup.add(series, cpus, run);
        }
        if session.options.quick {
            break;
        }
    }
    let x = Axis { label: "processors of the guest", unit: "", logarithmic: false };
    let y = Axis { label: "rate", unit: "kframe/s", logarithmic: false };
    let heading = Heading { name: name.into(), title: format!("Frames of 60 bytes that {what}"), source, x, y };
    let mut figures = vec![session.measure(name, heading.clone(), lineup)?];
    for (kind, (short, counted, unit)) in COUNTS.into_iter().enumerate() {
        let heading = Heading {
            name: format!("{name}-{short}"),
            title: format!("While {what}: {counted}"),
            y: Axis { label: counted, unit, logarithmic: false },
            ..heading.clone()
        };
        figures.push(beside.figure(kind, heading, &figures[0]));
    }
    Ok(figures)
}

/// One row at one place, in thousand frames per second.
struct Run {
    series: &'static str,
    station: Shared,
    way: Way,
    throttle: u32,
    x: f64,
    beside: Beside,
}

impl Run {
    fn note(&self, counted: &Counted) {
        let note = |kind, value| self.beside.note(kind, self.series, self.x, value);
        note(0, counted.interrupts / 1e3);
        if let Some(accesses) = counted.accesses {
            note(1, accesses.tails / 1e3);
            note(2, accesses.writes / 1e3);
            note(3, accesses.reads / 1e3);
            note(4, accesses.messages / counted.frames);
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

    fn minds_the_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let mut station = self.station.borrow_mut();
        station.set_throttle(self.throttle)?;
        let span = span * STRETCH;
        let best = match self.way {
            Way::Transmit => station.transmit(SIZE, span)?,
            Way::Receive => {
                let mut best = station.receive(SIZE, OFFERED[0], span / 4)?;
                for rate in &OFFERED[1..] {
                    let counted = station.receive(SIZE, *rate, span / 4)?;
                    if counted.frames < best.frames {
                        break;
                    }
                    best = counted;
                }
                best
            }
        };
        drop(station);
        self.note(&best);
        Ok(best.frames / 1e3)
    }
}
