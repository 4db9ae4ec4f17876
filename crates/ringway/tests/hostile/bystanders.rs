//! Two well-behaved ports that send each other checked frames all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_client::Shape;
use ringway_traffic::report::CheckReport;
use ringway_traffic::{Checker, Endpoint, FrameSpec, Frames, Level, Mac, Origin, ProcessEndpoint};

use ringway_scenes::{Daemon, PATIENCE, until};

/// Most frames under way in one direction. The receiver is never full, so each lost frame is the switch's fault.
const WINDOW: u64 = 192;
const BURST: u64 = 32;
/// If no frame comes for this time, the frames under way count as lost, and others are sent. (They may still come: the machine may have
/// stood still.)
const LOST_AFTER: Duration = Duration::from_secs(60);
/// If a thread looks at its rings at least this often, they have room for all frames.
const HELD_UP: Duration = Duration::from_millis(20);
const SIZES: [usize; 4] = [60, 61, 700, 1514];

/// A bystander.
struct Bystander {
    endpoint: ProcessEndpoint,
    frames: Vec<Frames>,
    turn: usize,
    checker: Checker,
    peer: Mac,
    sent: u64,
    received: u64,
}

/// The frames that one bystander sent, and the other's checks of them.
#[derive(Debug)]
pub struct Kept {
    pub sent: u64,
    pub received: u64,
    pub check: CheckReport,
    pub ended: Option<String>,
    /// Longest time between two looks at the rings.
    pub held_up: Duration,
}

/// The running pair.
pub struct Bystanders {
    stop: Arc<AtomicBool>,
    moved: Arc<AtomicU64>,
    thread: JoinHandle<(Duration, [Bystander; 2])>,
}

impl Bystander {
    fn attach(daemon: &Daemon, name: &str, own: Mac, peer: Mac) -> Self {
        let port = daemon.attach(name).expect("a well-behaved client's port");
        let frames = SIZES.map(|size| {
            // A stream is a sender with its own sequence numbers.
            let stream = Some(size as u16);
            let spec =
                FrameSpec { size, source: own, destinations: vec![peer], flows: 3, stream, ..FrameSpec::default() };
            Frames::new(&spec).expect("valid")
        });
        Self {
            endpoint: ProcessEndpoint::new(port),
            frames: frames.into(),
            turn: 0,
            checker: Checker::new(Level::Full, Origin::Zero),
            peer,
            sent: 0,
            received: 0,
        }
    }

    fn send(&mut self, under_way: u64) {
        let burst = WINDOW.saturating_sub(under_way).min(BURST);
        for _ in 0..burst {
            self.turn = (self.turn + 1) % self.frames.len();
            let frames = &mut self.frames[self.turn];
            if !self.endpoint.tx_push(frames.size(), |frame| frames.write(frame)) {
                break;
            }
            self.sent += 1;
        }
        self.endpoint.tx_flush();
    }

    /// Receives frames and checks those of the peer. Frames of other senders (an attacker's floods) are ignored.
    fn receive(&mut self) {
        let (checker, received, peer) = (&mut self.checker, &mut self.received, self.peer.0);
        self.endpoint.rx_batch(256, |frame| {
            if frame.get(6..12) == Some(&peer[..]) {
                checker.see(frame);
                *received += 1;
            }
        });
    }
}

impl Bystanders {
    /// Attaches both to `lan0` and starts their thread.
    pub fn start(daemon: &Daemon) -> Self {
        let (a, b) = (Mac::local(0x00aa_0001), Mac::local(0x00aa_0002));
        let mut pair =
            [Bystander::attach(daemon, "lan0:bystander-a", a, b), Bystander::attach(daemon, "lan0:bystander-b", b, a)];
        let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&moved));
        let thread = std::thread::spawn(move || {
            // Per direction: frames that count as lost.
            let mut lost = [0, 0];
            let mut last = (0, Instant::now());
            let (mut looked, mut held_up) = (Instant::now(), Duration::ZERO);
            loop {
                held_up = held_up.max(looked.elapsed());
                looked = Instant::now();
                let ending = stopped.load(Ordering::Relaxed);
                let under_way = [0, 1].map(|i| pair[i].sent.saturating_sub(pair[1 - i].received + lost[i]));
                if ending {
                    break;
                }
                for (bystander, under_way) in pair.iter_mut().zip(under_way) {
                    bystander.send(under_way);
                    bystander.receive();
                }
                let received = pair[0].received + pair[1].received;
                count.store(received, Ordering::Relaxed);
                if received != last.0 {
                    last = (received, Instant::now());
                } else if last.1.elapsed() > LOST_AFTER {
                    lost = [0, 1].map(|i| pair[i].sent.saturating_sub(pair[1 - i].received));
                    last.1 = Instant::now();
                }
                // Leaves the core to the switch. The sleep sets the rate and waits for nothing.
                std::thread::sleep(Duration::from_micros(50));
            }
            (held_up, pair)
        });
        let running = Self { stop, moved, thread };
        // All buffers of the rings have been used by then, so the memory that the daemon maps no longer grows.
        let rings = Shape::default();
        running.go_on(u64::from(8 * (rings.tx_slots + rings.rx_slots)));
        running
    }

    /// Returns the number of frames that both have received.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Waits until the bystanders have received this many further frames.
    pub fn go_on(&self, frames: u64) {
        let (goal, deadline) = (self.moved() + frames, Instant::now() + 2 * PATIENCE);
        while self.moved() < goal {
            assert!(!self.thread.is_finished(), "the bystanders' thread has ended");
            assert!(Instant::now() < deadline, "the bystanders are stuck: {} of {goal} frames", self.moved());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the bystanders. Their streams must be exact, and lost frames must be counted at the receiver as
    /// `receiver_full`. If the machine delayed their thread, attackers' frames may have filled their rings. Otherwise
    /// 99 % must have arrived.
    pub fn finish(self, daemon: &Daemon) {
        self.stop.store(true, Ordering::Relaxed);
        let (held_up, mut pair) = self.thread.join().expect("the bystanders' thread panicked");
        // The ports still exist. The first one sends to the second.
        for (from, receiver) in [(0, "bystander-b"), (1, "bystander-a")] {
            let full = || daemon.port(receiver)["drops"]["receiver_full"].as_u64().unwrap_or(0);
            let sent = pair[from].sent;
            until("each frame has come, or is counted as lost", || {
                pair[1 - from].receive();
                let received = pair[1 - from].received;
                received == sent || received + full() >= sent
            });
            let to = &pair[1 - from];
            let (received, check) = (to.received, to.checker.report());
            let ended = pair[from].endpoint.port().ended();
            let kept = Kept { sent, received, check, ended, held_up };
            let check = &kept.check;
            let wrong = check.reordered + check.duplicated + check.stale + check.corrupted + check.foreign;
            assert_eq!(wrong, 0, "bystanders' frames are not exact: {kept:?}");
            assert_eq!(kept.ended, None, "a bystander lost its port");
            // A ring that was full once has lost what was under way.
            let kept_most = (kept.received + WINDOW) * 100 >= kept.sent * 99;
            assert!(kept_most || kept.held_up > HELD_UP, "bystanders lost frames: {kept:?}");
        }
        drop(pair);
    }
}
