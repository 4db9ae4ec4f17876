//! Measures the generator's own cost per frame, on a plain ring that loops back within one thread.
//!
//! `cargo run --release -p ringway-traffic --example per_frame` shows times; the same program with the arguments `SIZE count|sequence|full
//! each|once` under `valgrind --tool=callgrind` shows instructions: divide the total by the frames shown.

use std::time::Duration;

use ringway_traffic::*;

/// A ring that the same endpoint fills and empties.
struct Loopback {
    buffers: Vec<u8>,
    lengths: Vec<u16>,
    head: usize,
    tail: usize,
}

const SLOTS: usize = 1024;
/// Not a power of two, so that buffers do not compete for the same cache sets.
const STRIDE: usize = 2368;

impl Loopback {
    fn new() -> Loopback {
        Loopback { buffers: vec![0; SLOTS * STRIDE], lengths: vec![0; SLOTS], head: 0, tail: 0 }
    }
}

impl Endpoint for Loopback {
    #[inline]
    fn tx_room(&mut self) -> usize {
        SLOTS - (self.head - self.tail)
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.tx_room() == 0 {
            return false;
        }
        let slot = self.head % SLOTS;
        fill(&mut self.buffers[slot * STRIDE..][..len]);
        self.lengths[slot] = len as u16;
        self.head += 1;
        true
    }

    #[inline]
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        self.tx_push(template.len(), |_| ())
    }

    fn tx_flush(&mut self) {}

    #[inline]
    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        let count = max.min(self.head - self.tail);
        for _ in 0..count {
            let slot = self.tail % SLOTS;
            take(&self.buffers[slot * STRIDE..][..usize::from(self.lengths[slot])]);
            self.tail += 1;
        }
        count
    }

    fn wait(&mut self, _for_rx: bool, _timeout: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

fn measure(size: usize, level: Level, fill: Fill) -> Result<f64, Box<dyn std::error::Error>> {
    let spec = FrameSpec { size, ..FrameSpec::default() };
    let station = Station::both(Loopback::new(), Frames::new(&spec)?, Checker::new(level, Origin::Zero));
    let mut pump = Pump::new([station], PumpOptions { fill, ..PumpOptions::default() });
    let report = pump.run(Duration::from_millis(500), &mut Watch::none())?;
    println!(
        "{size:5} bytes, {level:?}, fill {fill:?}: {} frames, {:.1} ns each",
        report.received.frames,
        1e9 / report.received.frames_per_second
    );
    Ok(report.received.frames_per_second)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [size, level, fill] = arguments.as_slice() {
        let level = match level.as_str() {
            "count" => Level::Count,
            "sequence" => Level::Sequence,
            _ => Level::Full,
        };
        let fill = if fill == "once" { Fill::Once } else { Fill::Each };
        measure(size.parse()?, level, fill)?;
        return Ok(());
    }
    for size in [60, 1514] {
        for (level, fill) in [
            (Level::Count, Fill::Once),
            (Level::Count, Fill::Each),
            (Level::Sequence, Fill::Each),
            (Level::Full, Fill::Each),
        ] {
            measure(size, level, fill)?;
        }
    }
    Ok(())
}
