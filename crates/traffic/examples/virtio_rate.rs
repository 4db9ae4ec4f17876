//! What the virtio-net driver itself costs for each frame: the rate of `gen loop` through a back end that only copies.
//!
//! `cargo run --release -p ringway-traffic --example virtio_rate` shows rates of all kinds of ring; the arguments are the seconds of
//! each run, then `split` or `packed`, then `in-order`, `each` (frames are written, not repeated), `sequence` (they are checked),
//! `alone` (one thread for all: for counting instructions with callgrind, less those of `copy`), `mergeable`, `size=60`, `ring=256`, `buffer=2304`.

#[path = "../tests/virtio/backend.rs"]
mod backend;
#[path = "../tests/virtio/device.rs"]
mod device;

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringway_traffic::*;
use rustix::thread::{CpuSet, sched_setaffinity};

use backend::Session;
use device::Queue;

/// Frames that a copier moves at once.
const BATCH: usize = 128;

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    // Where there is one CPU only, rates mean nothing anyway.
    let _ = sched_setaffinity(None, &only);
}

/// A back end that copies frames from its first port to its second.
struct Copier<'s> {
    ports: [&'s Session; 2],
    tx: Queue<'s>,
    rx: Queue<'s>,
    /// A receive buffer for which there was no frame yet.
    spare: Option<device::Buffer>,
}

impl<'s> Copier<'s> {
    fn new(ports: [&'s Session; 2]) -> Copier<'s> {
        let (mut tx, mut rx) = (Queue::new(ports[0], 1), Queue::new(ports[1], 0));
        tx.want_kick(false, false);
        rx.want_kick(false, false);
        Copier { ports, tx, rx, spare: None }
    }

    #[inline(never)]
    fn copy(&mut self) {
        for _ in 0..BATCH {
            let Some(to) = self.spare.take().or_else(|| self.rx.take()) else { break };
            let Some(from) = self.tx.take() else {
                self.spare = Some(to);
                break;
            };
            let source = self.ports[0].guest(from.address, from.len);
            assert!(self.ports[1].guest(to.address, from.len).copy_from(source), "as long as what is copied");
            self.tx.give(from.id, 0);
            self.rx.give(to.id, from.len);
        }
        self.tx.publish();
        self.rx.publish();
    }
}

/// The two ports of a copier; with one thread for all, it works when frames are flushed.
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
    std::thread::scope(|scope| {
        let mut copier = Some(Copier::new([&sessions[0], &sessions[1]]));
        if !alone && let Some(mut copier) = copier.take() {
            let stop = &stop;
            scope.spawn(move || {
                stay_on(1);
                while !stop.load(Ordering::Relaxed) {
                    copier.copy();
                }
            });
        }
        stay_on(0);
        let [near, far] = ports;
        let [near, far] = [Driver { inner: near, copier }, Driver { inner: far, copier: None }];
        let spec = FrameSpec { size: number("size=", 60), ..FrameSpec::default() };
        let fill = if words.contains(&"each") { Fill::Each } else { Fill::Once };
        let level = if words.contains(&"sequence") { Level::Sequence } else { Level::Count };
        let frames = Frames::new(&spec).expect("valid");
        let stations = [Station::source(near, frames), Station::sink(far, Checker::new(level, Origin::Zero))];
        let mut pump = Pump::new(stations, PumpOptions { fill, rx_batch: usize::MAX, ..PumpOptions::default() });
        let report = pump.run(Duration::from_secs_f64(seconds), &mut Watch::none()).expect("it stays");
        stop.store(true, Ordering::Relaxed);
        println!("{name}: {}", report.received);
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
