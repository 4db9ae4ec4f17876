//! The common part of the experiments with limits: ports that one thread drives and that all send as fast as they can, to one
//! receiver or to several.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac};

use crate::network::{Network, SENDER, introduce};
use crate::placement::{Cores, pin};
use crate::trial::Contestant;

/// Frames that a sender adds in its turn, and a receiver takes: fewer where senders are many, so that each has its turn before
/// its limit has saved up all that it may.
const TURN: usize = 64;
const ALL_TURNS: usize = 4096;
/// A turn with more bytes ends, so that long frames do not keep the others waiting.
const TURN_BYTES: usize = 64 * 1514;
/// Bytes that slow receivers take at once, at most.
const AT_ONCE: f64 = 65_536.0;
/// At most so many frames are taken when a window is over.
const MOST_LEFT: usize = 4096;
/// A window that ends later than this by more lacks what came meanwhile.
const LATE: Duration = Duration::from_millis(2);
/// Windows of a second are longer than those of other experiments by this factor.
const SECOND: u32 = 25;
/// How long a flood after a pause lasts.
const SUDDEN: Duration = Duration::from_millis(40);
/// What was saved up while the network stood still is spent in this time, in the first window in that.
const WARM_UP: Duration = Duration::from_millis(100);
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
/// So many senders touch all of their buffers in a window's time.
const SENDERS_A_SPAN: u32 = 16;
/// What is on its way has come after so long, or a network does not end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Address of the first sender; the others have the following ones.
const FIRST: u32 = SENDER + (1 << 16);

/// What is told of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// How far the rate at the receiver is from this one (bits per second), in percent of it. Where no frame came for as long
    /// as a burst lasts, a limit gives less by what it is: such a window does not count, nor one that ended late.
    Error(f64, Duration),
    /// What passes of a sudden flood beyond the rate (bits per second) and the burst (bytes), in frames, after as long a pause as
    /// saves up a burst.
    Burst(f64, usize),
    /// Jain's index of the senders' bytes.
    Fairness,
    /// Bytes of the first sender for each of the second.
    FirstToSecond,
}

impl Told {
    /// How long it takes until a whole burst has been saved up.
    fn refill(self) -> Option<Duration> {
        match self {
            Told::Error(_, refill) => Some(refill),
            Told::Burst(bits, burst) => Some(Duration::from_secs_f64(burst as f64 * 8.0 / bits)),
            _ => None,
        }
    }
}

/// Who floods whom.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of each sender's frames, in turn.
    pub sizes: Vec<Vec<usize>>,
    /// How many ports receive; frames are for all of them in turn.
    pub receivers: usize,
    /// Bits per second that they take together, if not all that comes. What they did not take in time they do not make up for.
    pub pace: Option<f64>,
    /// A window, in seconds.
    pub seconds: u32,
    /// What is told of it.
    pub told: Told,
}

impl Plan {
    /// Ports that flood one for a second.
    #[must_use]
    pub fn new(sizes: Vec<Vec<usize>>, told: Told) -> Plan {
        Plan { sizes, receivers: 1, pace: None, seconds: 1, told }
    }
}

/// One sender.
struct Sender<P> {
    port: P,
    /// What it sends, in turn.
    frames: Vec<Frames>,
    next: usize,
}

/// Senders and receivers.
pub struct Flood<N: Network> {
    // Ports go before their network.
    receivers: Vec<N::Port>,
    senders: Vec<Sender<N::Port>>,
    network: N,
    plan: Plan,
    cores: Cores,
    /// The longest time without a frame in the last window, and how late it ended.
    quiet: Duration,
    late: Duration,
    /// Some buffers have never been touched: until they have, senders are slow, too slow for their shares.
    fresh: bool,
}

impl<N: Network> Flood<N> {
    /// The first ports receive; each of the others is a sender. The network is held when this returns.
    ///
    /// # Errors
    /// The network refuses a port, or no frame gets through.
    pub fn new(mut network: N, cores: Cores, plan: Plan) -> io::Result<Flood<N>> {
        let mut ports = network.attach(plan.receivers + plan.sizes.len())?;
        let mut senders = ports.split_off(plan.receivers);
        // Only receivers have to be known: one of the senders hears them.
        ports.insert(0, senders.remove(0));
        introduce(&mut ports)?;
        senders.insert(0, ports.remove(0));
        network.hold()?;
        let senders = senders.into_iter().map(|port| Sender { port, frames: Vec::new(), next: 0 }).collect();
        let (quiet, late) = (Duration::ZERO, Duration::ZERO);
        let mut flood =
            Flood { receivers: ports, senders, network, plan: plan.clone(), cores, quiet, late, fresh: true };
        flood.adopt(plan)?;
        Ok(flood)
    }

    /// Follows another plan, with as many receivers, and as many senders at most.
    ///
    /// # Errors
    /// A size is none.
    fn adopt(&mut self, plan: Plan) -> io::Result<()> {
        let destinations: Vec<Mac> = (1..=plan.receivers as u32).map(|number| Mac::local(SENDER + number)).collect();
        self.senders.iter_mut().for_each(|sender| sender.frames.clear());
        for ((number, sender), sizes) in (0..).zip(&mut self.senders).zip(&plan.sizes) {
            let frames = sizes.iter().map(|&size| {
                let (source, destinations) = (Mac::local(FIRST + number), destinations.clone());
                Frames::new(&FrameSpec { size, source, destinations, ..FrameSpec::default() })
            });
            sender.frames = frames.collect::<Result<_, _>>().map_err(io::Error::other)?;
            sender.next = 0;
        }
        self.plan = plan;
        Ok(())
    }

    /// Sends and receives for `span`: bytes by sender. Nothing is left in a receiver's ring, unless it is slow: of what came while
    /// this thread stood still, the next window sees nothing.
    fn run(&mut self, span: Duration) -> Vec<u64> {
        let mut bytes = vec![0; self.plan.sizes.len()];
        let turn = (ALL_TURNS / bytes.len()).min(TURN);
        let start = Instant::now();
        let (mut now, mut last, mut paced, mut due) = (Duration::ZERO, Duration::ZERO, 0.0, 0.0);
        self.quiet = Duration::ZERO;
        while now < span {
            for place in 0..bytes.len() {
                let before = now;
                self.send(place, turn);
                let most = self.plan.pace.map(|bits| {
                    let until = start.elapsed().as_secs_f64();
                    due = f64::min(due + (until - paced) * bits / 8.0, AT_ONCE);
                    paced = until;
                    due.max(0.0) as u64
                });
                let came = self.receive(&mut bytes, most);
                due -= came as f64;
                if came > 0 {
                    // They may have come at any time since the last look.
                    last = before;
                }
                now = start.elapsed();
                self.quiet = self.quiet.max(now - last);
                // Many senders' turns take longer than a window may be late.
                if now >= span {
                    break;
                }
            }
        }
        self.late = now - span;
        let mut turns = if self.plan.pace.is_none() { MOST_LEFT / TURN } else { 0 };
        while turns > 0 && self.receive(&mut bytes, None) > 0 {
            turns -= 1;
        }
        bytes
    }

    /// A sender's turn.
    fn send(&mut self, place: usize, turn: usize) {
        let sender = &mut self.senders[place];
        let mut sent = 0;
        for _ in 0..sender.port.tx_room().min(turn) {
            if sent >= TURN_BYTES {
                break;
            }
            let place = sender.next;
            sender.next = (place + 1) % sender.frames.len();
            let frames = &mut sender.frames[place];
            let len = frames.size();
            sent += len * usize::from(sender.port.tx_push(len, |place| frames.write(place)));
        }
        if sent > 0 {
            sender.port.tx_flush();
        }
    }

    /// Adds what came from each sender to `bytes`, no frame after `most` bytes; returns how many bytes.
    fn receive(&mut self, bytes: &mut [u64], most: Option<u64>) -> u64 {
        let mut sum = 0;
        for receiver in &mut self.receivers {
            let mut take = |frame: &[u8]| {
                let number = frame.get(8..12).and_then(|end| end.try_into().ok()).map_or(0, u32::from_be_bytes);
                if let Some(bytes) = bytes.get_mut((number.wrapping_sub(FIRST)) as usize) {
                    *bytes += frame.len() as u64;
                    sum += frame.len() as u64;
                }
            };
            match most {
                None => _ = receiver.rx_batch(TURN, take),
                Some(most) => {
                    let mut taken = 0;
                    while taken < most
                        && receiver.rx_batch(1, |frame| {
                            taken += frame.len() as u64;
                            take(frame)
                        }) > 0
                    {}
                }
            }
        }
        sum
    }

    /// Receives until nothing has come for `pause`.
    fn rest(&mut self, pause: Duration) -> io::Result<()> {
        let mut bytes = vec![0; self.plan.sizes.len()];
        let start = Instant::now();
        let mut last = start;
        while last.elapsed() < pause {
            if self.receive(&mut bytes, None) > 0 {
                last = Instant::now();
            }
            if start.elapsed() > PATIENCE + pause {
                return Err(io::Error::other("frames keep coming though nobody sends"));
            }
        }
        Ok(())
    }
}

impl<N: Network> Contestant for Flood<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    /// What is measured does not depend on how fast the generator is.
    fn needs_its_core(&self) -> bool {
        false
    }

    fn was_held_up(&self) -> bool {
        self.plan.told.refill().is_some_and(|refill| self.quiet >= refill || self.late >= LATE)
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let span = if matches!(self.plan.told, Told::Burst(..)) { SUDDEN } else { span * SECOND * self.plan.seconds };
        let warm_up = match (std::mem::take(&mut self.fresh), self.plan.told.refill()) {
            (true, None) => span * (1 + self.senders.len() as u32 / SENDERS_A_SPAN),
            (true, Some(_)) => span.min(FIRST_WARM_UP),
            (false, _) => span.min(WARM_UP),
        };
        self.run(warm_up);
        if let (Told::Burst(..), Some(refill)) = (self.plan.told, self.plan.told.refill()) {
            self.rest(refill + refill / 4)?;
        }
        let start = Instant::now();
        let bytes = self.run(span);
        let seconds = start.elapsed().as_secs_f64();
        let sum: f64 = bytes.iter().map(|&bytes| bytes as f64).sum();
        if sum == 0.0 {
            return Err(io::Error::other("no frame got through"));
        }
        Ok(match self.plan.told {
            Told::Error(bits, _) => (sum * 8.0 / seconds / bits - 1.0) * 100.0,
            Told::Burst(bits, burst) => (sum - bits * seconds / 8.0 - burst as f64) / self.plan.sizes[0][0] as f64,
            Told::Fairness => {
                let squares: f64 = bytes.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
                sum * sum / (bytes.len() as f64 * squares)
            }
            Told::FirstToSecond => bytes[0] as f64 / bytes[1] as f64,
        })
    }
}

/// What makes a network fit for a plan.
pub type Change<N> = Box<dyn Fn(&mut N) -> io::Result<()>>;

/// A flood whose network takes long to start, and therefore is changed for each window of several contestants.
pub struct Changed<N: Network> {
    /// All that share it.
    pub flood: Rc<RefCell<Flood<N>>>,
    /// What this one does.
    pub plan: Plan,
    /// How the network has to be for it.
    pub change: Change<N>,
}

impl<N: Network> Contestant for Changed<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.flood.borrow_mut().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.flood.borrow_mut().hold()
    }

    fn needs_its_core(&self) -> bool {
        false
    }

    fn was_held_up(&self) -> bool {
        self.flood.borrow().was_held_up()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let mut flood = self.flood.borrow_mut();
        (self.change)(&mut flood.network)?;
        flood.adopt(self.plan.clone())?;
        flood.window(span)
    }
}
