//! Instructions that a guest's driver takes for a frame, counted by a plugin of QEMU's emulator. The state of the machine changes them
//! only as it changes how many frames an interrupt has.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ringway_guests::Guest;

use crate::extra_counts::ExtraCounts;
use crate::programs::{Compiled, INSTRUCTIONS};
use crate::report::{Axis, Figure, Heading};
use crate::scratch::Scratch;
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm_nics::{AUTO, BLOCK, COMBINING, Kind, REGISTERS, Shared, Station};

/// Length of a window in ordinary windows.
const STRETCH: u32 = 25;
/// Bytes of frames.
const SIZES: [usize; 2] = [60, 1514];
/// Frames per second that a guest receives: fewer than any loses.
const OFFERED: u64 = 16_000;
const MODERATED: Option<u32> = Some(4000);
/// Rows: name of the curve, NIC, module.
const ROWS: [(&str, Kind, &str); 5] = [
    (RINGWAY, BLOCK, "ringway_e1000"),
    ("own driver, registers", REGISTERS, "ringway_e1000"),
    ("own driver, combining", COMBINING, "ringway_e1000"),
    ("own driver, auto", AUTO, "ringway_e1000"),
    ("kernel's driver", Kind::E1000, "e1000"),
];
/// The lowest address whose page is counted (`programs/instructions.c`), and the size of a page.
const BOTTOM: u64 = 0xffff_ffff_8000_0000;
const PAGE: u64 = 4096;
/// Number of pages that are counted.
const PAGES: usize = 1 << 19;

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let plugin = Compiled::of(&INSTRUCTIONS);
    let boot = |(series, kind, module)| {
        let counts = Counts::new()?;
        Ok((series, module, counts.boot(session, series, &plugin, kind), counts))
    };
    let stations: Vec<_> = ROWS.into_iter().map(boot).collect::<io::Result<_>>()?;
    let mut done = Vec::new();
    for (name, title, sends) in
        [("transmit", "a guest's kernel sends, one at a time (pktgen)", true), ("receive", "a guest receives", false)]
    {
        let extra_counts = ExtraCounts::default();
        let mut lineup = session.lineup();
        for size in session.places(&SIZES) {
            for (series, module, station, counts) in &stations {
                let (extra_counts, counts) = (extra_counts.clone(), counts.clone());
                let run = |station| Run { series, module, station, counts, size, sends, extra_counts };
                lineup.add(series, size, with_any(station, run));
            }
        }
        let heading = Heading {
            name: format!("e1000-instructions-{name}"),
            title: format!("Instructions of the driver for a frame that {title}"),
            source: "ANCS 2013, section 3.3",
            x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
            y: Axis { label: "instructions", unit: "per frame", logarithmic: false },
        };
        let figure = session.measure("e1000-instructions", heading.clone(), lineup)?;
        let heading = Heading {
            name: format!("{}-kernel", heading.name),
            title: format!("Instructions of the rest of the kernel for a frame that {title}"),
            ..heading
        };
        let rest = extra_counts.figure(0, heading, &figure);
        done.extend([figure, rest]);
    }
    Ok(done)
}

/// The plugin's counts of a guest. Its clones read the same file.
#[derive(Clone)]
struct Counts {
    file: PathBuf,
    _scratch: Rc<Scratch>,
}

impl Counts {
    fn new() -> io::Result<Counts> {
        let scratch = Scratch::new("counts")?;
        Ok(Counts { file: scratch.path("counts"), _scratch: Rc::new(scratch) })
    }

    /// Boots a guest whose kernel's instructions are counted.
    fn boot(&self, session: &Session, series: &str, plugin: &Compiled, kind: Kind) -> io::Result<Shared> {
        let plugin = format!("{},counts={}", plugin.path()?.display(), self.file.display());
        Station::boot_with(session, &[series], kind, 1, &["-plugin".to_owned(), plugin])
    }

    /// Returns the instructions so far: in pages of a module with these addresses, and in others.
    fn read(&self, module: std::ops::Range<u64>) -> io::Result<[u64; 2]> {
        let mut bytes = vec![0; PAGES * size_of::<u64>()];
        File::open(&self.file)?.read_exact_at(&mut bytes, 0)?;
        let mut sums = [0; 2];
        for (page, count) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let address = BOTTOM + page as u64 * PAGE;
            sums[usize::from(!module.contains(&address))] += u64::from_ne_bytes(*count);
        }
        Ok(sums)
    }
}

/// One row at one place, in instructions per frame.
struct Run {
    series: &'static str,
    module: &'static str,
    station: Shared,
    counts: Counts,
    size: usize,
    sends: bool,
    extra_counts: ExtraCounts,
}

impl Run {
    /// Returns the frames that the driver counts, and the instructions.
    fn read(&self, guest: &Guest) -> io::Result<(f64, [u64; 2])> {
        let which = if self.sends { "tx_packets" } else { "rx_packets" };
        let said =
            guest.ok(&format!("cat /sys/class/net/eth0/statistics/{which}; grep '^{} ' /proc/modules", self.module));
        let said = said.map_err(io::Error::other)?;
        let (frames, module) =
            frames_and_module(&said).ok_or_else(|| io::Error::other(format!("the guest says {said:?}")))?;
        Ok((frames, self.counts.read(module)?))
    }
}

/// Reads a number of frames, and a line of /proc/modules: `NAME SIZE USERS - STATE ADDRESS`.
fn frames_and_module(said: &str) -> Option<(f64, std::ops::Range<u64>)> {
    let (frames, module) = said.split_once('\n')?;
    let words: Vec<&str> = module.split_whitespace().collect();
    let begin = u64::from_str_radix(words.get(5)?.strip_prefix("0x")?, 16).ok().filter(|begin| *begin >= BOTTOM)?;
    let size: u64 = words.get(1)?.parse().ok()?;
    Some((frames.trim().parse().ok()?, begin..begin.checked_add(size)?))
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
        station.set_throttle(MODERATED)?;
        let before = self.read(&station.guest)?;
        if self.sends {
            station.transmit(self.size, span * STRETCH)?;
        } else {
            station.receive(self.size, OFFERED, span * STRETCH)?;
        }
        let after = self.read(&station.guest)?;
        let frames = after.0 - before.0;
        if frames <= 0.0 {
            return Err(io::Error::other("the driver counts no frame"));
        }
        let [driver, rest] = [0, 1].map(|index| (after.1[index] - before.1[index]) as f64 / frames);
        self.extra_counts.note(0, self.series, self.size as f64, rest);
        Ok(driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_by_its_address() {
        let said = "12\ne1000 163840 0 - Live 0xffffffffa0012000\n";
        assert_eq!(frames_and_module(said), Some((12.0, 0xffff_ffff_a001_2000..0xffff_ffff_a003_a000)));
        // As a guest's user without rights sees it.
        assert_eq!(frames_and_module("12\ne1000 163840 0 - Live 0x0000000000000000\n"), None);
        assert_eq!(frames_and_module("12\n"), None);
    }

    #[test]
    fn instructions_are_those_of_the_modules_pages_and_others() {
        let scratch = Scratch::new("counts").unwrap();
        let file = scratch.path("counts");
        let mut words = vec![0_u64; PAGES];
        (words[0], words[2], words[3], words[4]) = (5, 10, 20, 40);
        std::fs::write(&file, words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()).unwrap();
        let counts = Counts { file, _scratch: Rc::new(scratch) };
        assert_eq!(counts.read(BOTTOM + 2 * PAGE..BOTTOM + 4 * PAGE).unwrap(), [30, 45]);
    }
}
