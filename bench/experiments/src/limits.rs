//! The common part of the experiments with limits: one thread sends from several ports as fast as it can, to one port or to several.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac};

use crate::network::{Network, SENDER, introduce};
use crate::patience::PATIENCE;
use crate::placement::{Cores, pin};
use crate::trial::Contestant;

/// Frames that a sender adds in its turn, and a receiver takes. With many senders a turn has fewer, so that each sender's next turn
/// comes before its bucket is full.
const TURN: usize = 64;
const ALL_TURNS: usize = 4096;
/// Most bytes of a turn, so that long frames do not delay the other ports.
const TURN_BYTES: usize = 64 * 1514;
/// Most bytes that a slow receiver takes at once.
const AT_ONCE: f64 = 65_536.0;
/// Most frames that a receiver takes when a window is over.
const MOST_LEFT: usize = 4096;
/// A window that ends later than this does not count: it would lack the frames that came meanwhile.
const LATE: Duration = Duration::from_millis(2);
/// Windows of a second are longer than those of other experiments by this factor.
const SECOND: u32 = 25;
/// Duration of the flood after a pause.
const SUDDEN: Duration = Duration::from_millis(40);
/// Time before a window in which buckets spend what they saved while the network was stopped.
const WARM_UP: Duration = Duration::from_millis(100);
/// The warm-up before the first window, in which senders touch some of their buffers for the first time.
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
/// Most senders that touch all of their buffers within one window.
const SENDERS_A_SPAN: u32 = 16;

/// Address of the first sender; the others have the following ones.
const FIRST: u32 = SENDER + (1 << 16);

/// What a window's value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Error of the rate at the receiver against this one (bits per second), in percent. After a pause as long as a burst lasts a
    /// correct limit passes less than its rate, so a window with such a pause does not count; nor does one that ended late.
    Error(f64, Duration),
    /// Frames of a sudden flood that pass beyond the rate (bits per second) and the burst (bytes). The flood follows a pause in
    /// which the bucket refills.
    Burst(f64, usize),
    /// Jain's index of the senders' bytes.
    Fairness,
    /// Bytes of the first sender for each byte of the second.
    FirstToSecond,
}

impl Metric {
    /// Time in which the bucket refills a whole burst.
    fn refill(self) -> Option<Duration> {
        match self {
            Metric::Error(_, refill) => Some(refill),
            Metric::Burst(bits, burst) => Some(Duration::from_secs_f64(burst as f64 * 8.0 / bits)),
            _ => None,
        }
    }
}

/// Senders, receivers, sizes and rates of a flood.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of each sender's frames, in turn.
    pub sizes: Vec<Vec<usize>>,
    /// Number of ports that receive. Frames go to them by turns.
    pub receivers: usize,
    /// Bits per second that the receivers take together; `None`: all that comes. They do not make up for time that they missed.
    pub pace: Option<f64>,
    /// Duration of a window, in seconds.
    pub seconds: u32,
    /// What a window's value is.
    pub metric: Metric,
}

impl Plan {
    /// Ports that flood one for a second.
    #[must_use]
    pub fn new(sizes: Vec<Vec<usize>>, metric: Metric) -> Plan {
        Plan { sizes, receivers: 1, pace: None, seconds: 1, metric }
    }
}

/// One sender.
struct Sender<P> {
    port: P,
    /// The frames that it sends, by turns.
    frames: Vec<Frames>,
    next: usize,
}

/// Senders and receivers.
pub struct Flood<N: Network> {
    // Ports are dropped before their network.
    receivers: Vec<N::Port>,
    senders: Vec<Sender<N::Port>>,
    network: N,
    plan: Plan,
    cores: Cores,
    /// The longest time without a frame in the last window, and how late it ended.
    quiet: Duration,
    late: Duration,
    /// True if some buffers have never been touched. The first use of a buffer is slow, too slow for a sender's share.
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
        // The switch has to learn the receivers only. One of the senders hears their frames.
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

    /// Follows another plan, which has the same number of receivers and no more senders.
    ///
    /// # Errors
    /// A frame cannot have this size.
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

    /// Sends and receives for `span`. Returns the bytes that came, by sender. At the end a receiver's ring is empty, unless the
    /// receiver is slow, so that the next window does not count frames of this one.
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
                    // They may have come at any time since the last poll.
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

    /// The generator's speed does not change the value.
    fn needs_its_core(&self) -> bool {
        false
    }

    fn was_held_up(&self) -> bool {
        self.plan.metric.refill().is_some_and(|refill| self.quiet >= refill || self.late >= LATE)
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let span =
            if matches!(self.plan.metric, Metric::Burst(..)) { SUDDEN } else { span * SECOND * self.plan.seconds };
        let warm_up = match (std::mem::take(&mut self.fresh), self.plan.metric.refill()) {
            (true, None) => span * (1 + self.senders.len() as u32 / SENDERS_A_SPAN),
            (true, Some(_)) => span.min(FIRST_WARM_UP),
            (false, _) => span.min(WARM_UP),
        };
        self.run(warm_up);
        if let (Metric::Burst(..), Some(refill)) = (self.plan.metric, self.plan.metric.refill()) {
            self.rest(refill + refill / 4)?;
        }
        let start = Instant::now();
        let bytes = self.run(span);
        let seconds = start.elapsed().as_secs_f64();
        let sum: f64 = bytes.iter().map(|&bytes| bytes as f64).sum();
        if sum == 0.0 {
            return Err(io::Error::other("no frame got through"));
        }
        Ok(match self.plan.metric {
            Metric::Error(bits, _) => (sum * 8.0 / seconds / bits - 1.0) * 100.0,
            Metric::Burst(bits, burst) => (sum - bits * seconds / 8.0 - burst as f64) / self.plan.sizes[0][0] as f64,
            Metric::Fairness => {
                let squares: f64 = bytes.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
                sum * sum / (bytes.len() as f64 * squares)
            }
            Metric::FirstToSecond => bytes[0] as f64 / bytes[1] as f64,
        })
    }
}

/// Changes a network for a plan.
pub type Reconfigure<N> = Box<dyn Fn(&mut N) -> io::Result<()>>;

/// A flood whose network takes long to start. Several contestants share it and change it for each window.
pub struct SharedFlood<N: Network> {
    /// The flood that the contestants share.
    pub flood: Rc<RefCell<Flood<N>>>,
    /// This contestant's plan.
    pub plan: Plan,
    /// Changes the network for this contestant.
    pub change: Reconfigure<N>,
}

impl<N: Network> Contestant for SharedFlood<N> {
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
