//! What the experiments with limits have in common: ports that all send as fast as they can to one, by one thread.

use std::io;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac};

use crate::network::{Network, SENDER, introduce};
use crate::placement::{Cores, pin};
use crate::trial::Contestant;

/// Frames that a sender adds in its turn, and the receiver takes: fewer where senders are many, so that each has its turn before
/// its limit has saved up all that it may.
const TURN: usize = 64;
const ALL_TURNS: usize = 4096;
/// A turn with more bytes ends, so that long frames do not keep the others waiting.
const TURN_BYTES: usize = 64 * 1514;
/// At most so many frames are taken when a window is over.
const MOST_LEFT: usize = 4096;
/// A window that ends later than this by more lacks what came meanwhile.
const LATE: Duration = Duration::from_millis(2);
/// Windows are longer than those of other experiments by this factor: 40 ms become a second.
const LONGER: u32 = 25;

/// Address of the first sender; the others have the following ones.
const FIRST: u32 = SENDER + 2;

/// What is told of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// How far the rate at the receiver is from this one (bits per second), in percent of it. Where no frame came for as long
    /// as a burst lasts, a limit gives less by what it is: such a window does not count, nor one that ended late.
    Error(f64, Duration),
    /// Jain's index of the senders' bytes.
    Fairness,
    /// Bytes of the first sender for each of the second.
    FirstToSecond,
}

/// One sender.
struct Sender<P> {
    port: P,
    /// What it sends, in turn.
    frames: Vec<Frames>,
    next: usize,
}

/// Senders and their receiver.
pub struct Flood<N: Network> {
    // Ports go before their network.
    receiver: N::Port,
    senders: Vec<Sender<N::Port>>,
    network: N,
    told: Told,
    cores: Cores,
    /// The longest time without a frame in the last window, and how late it ended.
    quiet: Duration,
    late: Duration,
    /// Some buffers have never been touched: until they have, the sender is slow.
    fresh: bool,
}

impl<N: Network> Flood<N> {
    /// The first port receives; each of the others sends frames of its own sizes in turn. The network is held when this
    /// returns.
    ///
    /// # Errors
    /// The network refuses a port, or no frame gets through.
    pub fn new(mut network: N, cores: Cores, sizes: &[Vec<usize>], told: Told) -> io::Result<Flood<N>> {
        let mut ports = network.attach(1 + sizes.len())?;
        // Only the receiver has to be known: one of the others hears it.
        let (receiver, first) = (ports.remove(0), ports.remove(0));
        let mut pair = [first, receiver];
        introduce(&mut pair)?;
        let [first, receiver] = pair;
        ports.insert(0, first);
        network.hold()?;
        let mut senders = Vec::new();
        for ((number, port), sizes) in (0..).zip(ports).zip(sizes) {
            let frames = sizes.iter().map(|&size| {
                let source = Mac::local(FIRST + number);
                let destinations = vec![Mac::local(SENDER + 1)];
                Frames::new(&FrameSpec { size, source, destinations, ..FrameSpec::default() })
            });
            let frames = frames.collect::<Result<_, _>>().map_err(io::Error::other)?;
            senders.push(Sender { port, frames, next: 0 });
        }
        Ok(Flood { receiver, senders, network, told, cores, quiet: Duration::ZERO, late: Duration::ZERO, fresh: true })
    }

    /// Sends and receives for `span`: bytes by sender. Nothing is left in the receiver's ring: of what came while this thread stood
    /// still, the next window sees nothing.
    fn run(&mut self, span: Duration) -> Vec<u64> {
        let mut bytes = vec![0; self.senders.len()];
        let turn = (ALL_TURNS / self.senders.len()).min(TURN);
        let start = Instant::now();
        let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
        self.quiet = Duration::ZERO;
        while now < span {
            let before = now;
            for sender in &mut self.senders {
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
                if receive(&mut self.receiver, &mut bytes) > 0 {
                    // They may have come at any time since the last look.
                    last = before;
                }
            }
            now = start.elapsed();
            self.quiet = self.quiet.max(now - last);
        }
        self.late = now - span;
        let mut turns = MOST_LEFT / TURN;
        while turns > 0 && receive(&mut self.receiver, &mut bytes) > 0 {
            turns -= 1;
        }
        bytes
    }
}

/// Adds what came from each sender to `bytes`; returns how many frames.
fn receive(receiver: &mut impl Endpoint, bytes: &mut [u64]) -> usize {
    receiver.rx_batch(TURN, |frame| {
        let number = frame.get(8..12).and_then(|end| end.try_into().ok()).map_or(0, u32::from_be_bytes);
        if let Some(bytes) = bytes.get_mut((number.wrapping_sub(FIRST)) as usize) {
            *bytes += frame.len() as u64;
        }
    })
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
        matches!(self.told, Told::Error(_, burst) if self.quiet >= burst || self.late >= LATE)
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let span = span * LONGER;
        // What was saved up while the network stood still is spent before.
        let fresh = std::mem::take(&mut self.fresh);
        self.run(if fresh { span } else { span / 4 });
        let start = Instant::now();
        let bytes = self.run(span);
        let sum: f64 = bytes.iter().map(|&bytes| bytes as f64).sum();
        if sum == 0.0 {
            return Err(io::Error::other("no frame got through"));
        }
        Ok(match self.told {
            Told::Error(bits, _) => (sum * 8.0 / start.elapsed().as_secs_f64() / bits - 1.0) * 100.0,
            Told::Fairness => {
                let squares: f64 = bytes.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
                sum * sum / (bytes.len() as f64 * squares)
            }
            Told::FirstToSecond => bytes[0] as f64 / bytes[1] as f64,
        })
    }
}
