//! Measures the virtio-net driver's own cost per frame: the rate of `gen loop` through a back end that only copies.
//!
//! `cargo run --release -p ringway-traffic --example virtio_rate` shows rates of all kinds of ring; the arguments are the seconds of
//! each run, then `split` or `packed`, then `in-order`, `each` (frames are written, not repeated), `sequence` (they are checked),
//! `alone` (one thread for all), `frames=131072` (so many in all, with `alone`: for counting instructions with callgrind and
//! `--toggle-collect='*cost_turn*'`), `uncopied` (frames' bytes stay where they are), `mergeable`, `size=60`, `ring=256`, `buffer=2304`.

#[path = "../tests/virtio/backend.rs"]
mod backend;
#[path = "../tests/virtio/device.rs"]
mod device;

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringway_memory::View;
use ringway_traffic::*;
use rustix::thread::{CpuSet, sched_setaffinity};

use backend::Session;
use device::Queue;

/// Frames that a copier moves at once.
const BATCH: usize = 128;
/// Spin-loop hints of a copier that found few frames.
const PAUSES: usize = 16;

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    // On a machine with one CPU, rates have no meaning anyway.
    let _ = sched_setaffinity(None, &only);
}

/// A back end that copies frames from its first port to its second.
struct Copier<'s> {
    tx: Queue<'s>,
    rx: Queue<'s>,
    tx_memory: View<'s>,
    rx_memory: View<'s>,
    guest: u64,
    /// A receive buffer that has no frame yet.
    spare: Option<device::Buffer>,
    /// True if frames are copied. Otherwise their buffers are only marked used.
    copies: bool,
    /// Frames to copy, each with its target buffer.
    batch: Vec<(device::Buffer, device::Buffer)>,
}

impl<'s> Copier<'s> {
    fn new(ports: [&'s Session; 2], copies: bool) -> Copier<'s> {
        let (mut tx, mut rx) = (Queue::new(ports[0], 1), Queue::new(ports[1], 0));
        tx.want_kick(false, false);
        rx.want_kick(false, false);
        let [tx_memory, rx_memory] = ports.map(|port| port.memory.whole());
        assert_eq!(ports[0].guest, ports[1].guest);
        let batch = Vec::with_capacity(BATCH);
        Copier { tx, rx, tx_memory, rx_memory, guest: ports[0].guest, spare: None, copies, batch }
    }

    /// Copies the available frames. Returns their number.
    #[inline(never)]
    fn copy(&mut self) -> usize {
        while self.batch.len() < BATCH {
            let Some(to) = self.spare.take().or_else(|| self.rx.take()) else { break };
            let Some(from) = self.tx.take() else {
                self.spare = Some(to);
                break;
            };
            self.batch.push((from, to));
        }
        for (from, to) in &self.batch {
            // No prefetching: `prefetchw` of the targets halves the rate on some machines.
            let source = self.tx_memory.sub((from.address - self.guest) as usize, from.len as usize);
            let target = self.rx_memory.sub((to.address - self.guest) as usize, to.len as usize);
            let both = target.zip(source).expect("inside the memory");
            assert!(!self.copies || both.0.copy_from(both.1), "both views are of the same length");
            self.tx.give(from.id, 0);
            self.rx.give(to.id, from.len);
        }
        self.tx.publish();
        self.rx.publish();
        let copied = self.batch.len();
        self.batch.clear();
        copied
    }
}

/// Returns the nanoseconds that a cache line needs from one CPU to the other and back. Rates are only comparable at
/// equal times.
fn distance() -> u128 {
    const TURNS: u64 = 20_000;
    let line = AtomicU64::new(0);
    std::thread::scope(|scope| {
        stay_on(1);
        scope.spawn(|| {
            for turn in (1..2 * TURNS).step_by(2) {
                while line.load(Ordering::Acquire) != turn {}
                line.store(turn + 1, Ordering::Release);
            }
        });
        stay_on(0);
        let start = Instant::now();
        for turn in (0..2 * TURNS).step_by(2) {
            while line.load(Ordering::Acquire) != turn {}
            line.store(turn + 1, Ordering::Release);
        }
        start.elapsed().as_nanos() / u128::from(TURNS)
    })
}

/// A driver's endpoint. If one thread does all the work, it runs the copier at each flush.
struct Driver<'s, R> {
    inner: VirtioEndpoint<R>,
    copier: Option<Copier<'s>>,
}

impl<R: Ring> Endpoint for Driver<'_, R> {
    #[inline]
    fn tx_room(&mut self) -> usize {
        self.inner.tx_room()
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        self.inner.tx_push(len, fill)
    }

    #[inline]
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        self.inner.tx_repeat(template)
    }

    #[inline]
    fn tx_flush(&mut self) {
        self.inner.tx_flush();
        if let Some(copier) = &mut self.copier {
            copier.copy();
        }
    }

    #[inline]
    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize {
        self.inner.rx_batch(max, take)
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> std::io::Result<()> {
        self.inner.wait(for_rx, timeout)
    }
}

/// Queues a batch: writes each frame, or repeats what its buffer holds.
#[inline(never)]
fn cost_turn_send<R: Ring>(near: &mut VirtioEndpoint<R>, template: &[u8], each: bool) {
    let count = near.tx_room().min(BATCH);
    if each {
        (0..count).for_each(|_| assert!(near.tx_push(template.len(), |frame| frame.copy_from_slice(template))));
    } else {
        near.tx_repeat_many(template, count);
    }
    near.tx_flush();
}

/// Receives what has come. Returns its bytes.
#[inline(never)]
fn cost_turn_receive<R: Ring>(far: &mut VirtioEndpoint<R>) -> usize {
    let mut bytes = 0;
    far.rx_batch(usize::MAX, |frame| bytes += frame.len());
    bytes
}

/// Moves a number of frames in batches, by turns written and repeated. Returns how many have come.
fn fixed<R: Ring>(near: Driver<'_, R>, mut far: Driver<'_, R>, frames: usize, size: usize) -> usize {
    let (Driver { inner: mut near, copier }, template) = (near, vec![7; size]);
    let mut copier = copier.expect("alone");
    let turn = |number: usize| {
        cost_turn_send(&mut near, &template, number % 2 == 1);
        copier.copy();
        cost_turn_receive(&mut far.inner)
    };
    (0..frames / BATCH).map(turn).sum::<usize>() / size
}

fn rate<R: Ring>(name: &str, seconds: f64, options: &VirtioOptions, words: &[&str]) {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    let number = |key: &str, default: usize| {
        words.iter().find_map(|word| word.strip_prefix(key)).map_or(default, |text| text.parse().expect("a number"))
    };
    let mergeable = words.contains(&"mergeable");
    let mut options = VirtioOptions { mergeable, ..options.clone() };
    options.tx_ring = number("ring=", 256) as u32;
    options.rx_ring = 2 * options.tx_ring;
    options.buffer_size = number("buffer=", options.buffer_size as usize) as u32;
    let servers = [0, 1].map(|port| {
        let listener = UnixListener::bind(&paths[port]).expect("a socket");
        std::thread::spawn(move || Session::serve(&listener))
    });
    let ports = [0, 1].map(|port| VirtioEndpoint::<R>::attach(&paths[port], &options).expect("a back end"));
    let sessions = servers.map(|server| server.join().expect("a session"));
    let stop = AtomicBool::new(false);
    let alone = words.contains(&"alone");
    let frames = number("frames=", 0);
    // The measurement spins: that takes minutes under callgrind.
    let before = if frames > 0 { 0 } else { distance() };
    std::thread::scope(|scope| {
        let mut copier = Some(Copier::new([&sessions[0], &sessions[1]], !words.contains(&"uncopied")));
        if !alone && let Some(mut copier) = copier.take() {
            let stop = &stop;
            stay_on(1);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if copier.copy() < BATCH / 4 {
                        // Without a pause, a fast copier takes each frame alone.
                        (0..PAUSES).for_each(|_| std::hint::spin_loop());
                    }
                }
            });
        }
        stay_on(0);
        let [near, far] = ports;
        let [near, far] = [Driver { inner: near, copier }, Driver { inner: far, copier: None }];
        if frames > 0 {
            println!("{name}: {} frames", fixed(near, far, frames, number("size=", 60)));
            return;
        }
        let spec = FrameSpec { size: number("size=", 60), ..FrameSpec::default() };
        let fill = if words.contains(&"each") { Fill::Each } else { Fill::Once };
        let level = if words.contains(&"sequence") { Level::Sequence } else { Level::Count };
        let frames = Frames::new(&spec).expect("valid");
        let stations = [Station::source(near, frames), Station::sink(far, Checker::new(level, Origin::Zero))];
        let mut pump = Pump::new(stations, PumpOptions { fill, rx_batch: usize::MAX, ..PumpOptions::default() });
        let report = pump.run(Duration::from_secs_f64(seconds), &mut Watch::none()).expect("the back end stays");
        stop.store(true, Ordering::Relaxed);
        println!("{name}: {}; {} to {} ns there and back", report.received, before, distance());
    });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let seconds = words.first().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    for in_order in [false, true] {
        if words.contains(&"in-order") && !in_order {
            continue;
        }
        let options = VirtioOptions { in_order, ..VirtioOptions::default() };
        let kind = if in_order { ", in order" } else { "" };
        if !words.contains(&"packed") {
            rate::<Split>(&format!("split{kind}"), seconds, &options, &words);
        }
        if !words.contains(&"split") {
            rate::<Packed>(&format!("packed{kind}"), seconds, &options, &words);
        }
    }
}
