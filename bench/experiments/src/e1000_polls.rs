//! Frames that a guest's driver takes in each poll of its NIC (NAPI), as its kernel counts them.

use std::io;
use std::time::Duration;

use ringway_guests::Guest;

use crate::extra_counts::ExtraCounts;
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm_nics::{BLOCK, Kind, QEMU_E1000, REGISTERS, Shared, Station};

/// Length of a window in ordinary windows.
const STRETCH: u32 = 10;
/// Bytes of a frame.
const SIZE: usize = 60;
/// Rows of the tables: name of the curve, NIC, most interrupts per second.
const ROWS: [(&str, Kind, u32); 8] = [
    (RINGWAY, Kind::E1000, 4000),
    ("ringway, unmoderated", Kind::E1000, 0),
    ("ringway e1000e, mapped", Kind::Mapped, 4000),
    ("qemu e1000", QEMU_E1000, 4000),
    ("qemu e1000, unmoderated", QEMU_E1000, 0),
    ("own driver, registers", REGISTERS, 4000),
    ("own driver, registers, unmoderated", REGISTERS, 0),
    ("own driver, status block", BLOCK, 4000),
];
/// Classes of polls by the frames that they took: short name, description.
const CLASSES: [(&str, &str); 4] =
    [("none", "took no frame"), ("one", "took one frame"), ("two", "took two frames"), ("more", "took three or more")];

/// Shell command that makes the kernel count polls of eth0 by the frames that they took, from 0 on.
const COUNT: &str = "[ -e /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing; \
    cd /sys/kernel/tracing/events/napi/napi_poll; hist='hist:keys=work if dev_name == \"eth0\"'; \
    ! grep -q ^hist trigger || echo \"!$hist\" >trigger; echo \"$hist\" >trigger";
/// Shell command that prints the counts: lines with frames taken and number of polls.
const COUNTED: &str =
    "awk '$1 == \"{\" && $2 == \"work:\" { print $3, $6 }' /sys/kernel/tracing/events/napi/napi_poll/hist";

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let extra_counts = ExtraCounts::default();
    let mut lineup = session.lineup();
    let stations = ROWS.map(|(series, kind, most)| (series, most, Station::boot(session, &[series], kind, 1)));
    for rate in session.places(&[14_000, 64_000, 128_000]) {
        for (series, most, station) in &stations {
            let (x, extra_counts, most) = (rate as f64 / 1e3, extra_counts.clone(), *most);
            let polls = |station| Polls { series, station, rate: rate as u64, most, x, extra_counts };
            lineup.add_at(series, x, with_any(station, polls));
        }
    }
    let heading = Heading {
        name: "e1000-polls".into(),
        title: "Frames that a guest's driver takes in each poll of its NIC (NAPI)".into(),
        source: "Maffione, table 3.3",
        x: Axis { label: "offered", unit: "kframe/s", logarithmic: true },
        y: Axis { label: "taken", unit: "frames per poll", logarithmic: false },
    };
    let mut figures = vec![session.measure("e1000-polls", heading.clone(), lineup)?];
    for (class, (short, what)) in CLASSES.into_iter().enumerate() {
        let heading = Heading {
            name: format!("e1000-polls-{short}"),
            title: format!("Polls of a guest's NIC (NAPI) that {what}"),
            y: Axis { label: "share", unit: "%", logarithmic: false },
            ..heading.clone()
        };
        figures.push(extra_counts.figure(class, heading, &figures[0]));
    }
    Ok(figures)
}

/// A guest that receives at a rate.
struct Polls {
    series: &'static str,
    station: Shared,
    rate: u64,
    most: u32,
    x: f64,
    extra_counts: ExtraCounts,
}

impl Contestant for Polls {
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
        station.set_throttle(Some(self.most))?;
        station.guest.ok(COUNT).map_err(io::Error::other)?;
        station.receive(SIZE, self.rate, span * STRETCH)?;
        let counted = counted(&station.guest)?;
        let (mut polls, mut frames, mut classes) = (0.0, 0.0, [0.0; 4]);
        for (taken, count) in counted {
            polls += count;
            frames += count * taken as f64;
            classes[taken.min(3)] += count;
        }
        if polls == 0.0 {
            return Err(io::Error::other("the guest's kernel counted no poll"));
        }
        for (class, count) in classes.into_iter().enumerate() {
            self.extra_counts.note(class, self.series, self.x, count / polls * 100.0);
        }
        Ok(frames / polls)
    }
}

/// Number of polls that took so many frames.
fn counted(guest: &Guest) -> io::Result<Vec<(usize, f64)>> {
    let said = guest.ok(COUNTED).map_err(io::Error::other)?;
    let line = |line: &str| {
        let (taken, polls) = line.split_once(' ')?;
        Some((taken.parse().ok()?, polls.parse().ok()?))
    };
    let lines: Option<Vec<_>> = said.lines().map(line).collect();
    lines.ok_or_else(|| io::Error::other(format!("the guest's kernel counts {said:?}")))
}
