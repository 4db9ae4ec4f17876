//! The sending side of a handle: the transmit ring, and the waits for room in it and for other senders.
//!
//! The two sides share only the port's eventfd and connection, and each side waits for these with an epoll instance of its own. So one
//! thread can send while another receives.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_client::{Port, TxRing};
use rustix::time::Timespec;

use crate::breaker::Breaker;
use crate::lock::{Busy, Guard, Lock};
use crate::source;
use crate::wait::Sleep;

/// What a non-blocking sender without room is told.
const RING_FULL: &str = "send: the ring is full: the switch has not taken earlier frames yet";
/// How often a non-blocking sender without room asks whether the port has ended: one system call.
const ENDED_EVERY: u32 = 64;
/// Longest wait of a sender for room in the ring, and for other senders that wait for it: a switch that takes no frame for so long
/// hangs.
const ROOM_WITHIN: Duration = Duration::from_secs(5);
/// How often a sender looks for the end of another one that does not wait.
const LOOKS: u32 = 100;
/// Shortest and longest frame that can be sent.
const FRAME: std::ops::RangeInclusive<usize> = 14..=65_535;
/// Longest wait at the end of a handle for the switch to take what was sent.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How often that wait looks.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// What ends the wait of a send.
#[derive(Clone, Copy)]
pub struct Waiting<'a> {
    pub breaker: &'a Breaker,
    pub nonblocking: &'a AtomicBool,
}

/// Why a frame was not sent. Refusals that a signal handler gets need no memory.
pub type Refusal = Cow<'static, str>;

/// Sends a frame. If the handle blocks, waits for other senders and for room, until a request to break.
#[inline]
pub fn send(sender: &Lock<Sender>, frame: &[u8], waiting: Waiting<'_>) -> Result<(), Refusal> {
    if !FRAME.contains(&frame.len()) {
        let text = format!("send: a frame has {} to {} bytes, not {}", FRAME.start(), FRAME.end(), frame.len());
        return Err(text.into());
    }
    let mut wait = Wait::new(waiting.breaker);
    let mut sender = match sender.try_lock() {
        Ok(sender) => sender,
        Err(busy) => await_sender(sender, busy, &mut wait, waiting)?,
    };
    if sender.push(frame) { Ok(()) } else { sender.send_without_room(frame, &mut wait, waiting) }
}

/// Waits for the end of other sends.
#[cold]
fn await_sender<'a>(
    sender: &'a Lock<Sender>,
    mut busy: Busy,
    wait: &mut Wait,
    waiting: Waiting<'_>,
) -> Result<Guard<'a, Sender>, Refusal> {
    let mut looks = 0;
    loop {
        match busy {
            Busy::Interrupted => return Err("send: the signal handler has interrupted a send by this handle".into()),
            Busy::Inherited => return Err("send: the parent was sending by this handle when it forked".into()),
            Busy::Held if looks < LOOKS => {
                looks += 1;
                std::hint::spin_loop();
            }
            Busy::Held if waiting.nonblocking.load(Ordering::Relaxed) => return Err(RING_FULL.into()),
            // What ends the wait of the other one ends this one.
            Busy::Held => sender.sleep(wait.left(waiting.breaker)?),
        }
        match sender.try_lock() {
            Ok(sender) => return Ok(sender),
            Err(why) => busy = why,
        }
    }
}

/// The wait of one send, which begins when it is first asked how long it may last.
struct Wait {
    /// Number of requests to break before the send: they do not end it.
    asked: u64,
    deadline: Option<Instant>,
}

impl Wait {
    #[inline]
    fn new(breaker: &Breaker) -> Wait {
        Wait { asked: breaker.asked(), deadline: None }
    }

    /// Returns how long the wait may last yet.
    fn left(&mut self, breaker: &Breaker) -> Result<Duration, Refusal> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + ROOM_WITHIN);
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("send: the switch has taken no frame for {} s", ROOM_WITHIN.as_secs()).into());
        }
        if breaker.asked() != self.asked {
            return Err("send: pcap_breakloop has ended the wait for room in the ring".into());
        }
        Ok(left)
    }
}

/// Sends frames: one thread at a time.
#[derive(Debug)]
pub struct Sender {
    port: Arc<Port>,
    ring: TxRing,
    /// Made with the first wait.
    sleep: Option<Sleep>,
    /// Frames that were not sent for want of room.
    refused: u32,
}

impl Sender {
    pub fn new(port: Arc<Port>, ring: TxRing) -> Sender {
        Sender { port, ring, sleep: None, refused: 0 }
    }

    /// Queues a frame and publishes it. Returns false when there is no room.
    #[inline]
    fn push(&mut self, frame: &[u8]) -> bool {
        let queued = self.ring.push(frame);
        if queued {
            self.ring.flush();
        }
        queued
    }

    #[cold]
    fn send_without_room(&mut self, frame: &[u8], wait: &mut Wait, waiting: Waiting<'_>) -> Result<(), Refusal> {
        let slots = frame.len().div_ceil(self.ring.buffer_size());
        loop {
            if waiting.nonblocking.load(Ordering::Relaxed) {
                return Err(self.refuse());
            }
            if let Some(why) = self.port.ended() {
                return Err(format!("send: {why}").into());
            }
            let left = wait.left(waiting.breaker)?;
            self.await_room(slots, left, waiting.breaker).map_err(|error| format!("send: {error}"))?;
            if self.push(frame) {
                return Ok(());
            }
        }
    }

    /// Returns why a non-blocking sender has not sent.
    fn refuse(&mut self) -> Refusal {
        let asks = self.refused.is_multiple_of(ENDED_EVERY);
        self.refused = self.refused.wrapping_add(1);
        let why = if asks { self.port.ended() } else { None };
        why.map_or(RING_FULL.into(), |why| format!("send: {why}").into())
    }

    /// Sleeps until there may be so many free slots, or for another reason to look.
    fn await_room(&mut self, slots: usize, longest: Duration, breaker: &Breaker) -> io::Result<()> {
        let sleep = match self.sleep.take() {
            Some(sleep) => sleep,
            None => Sleep::new(&source::descriptors(&self.port), breaker)?,
        };
        let sleep = self.sleep.insert(sleep);
        let slept = if self.ring.want_room(slots) { Ok(()) } else { sleep.sleep(Some(longest)).map(|_| ()) };
        self.ring.want_no_call();
        slept.or_else(|error| if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) })
    }
}

impl Drop for Sender {
    /// Waits until the switch has taken what was sent: a program may send and close at once.
    fn drop(&mut self) {
        let all = self.ring.slots() - 1;
        let deadline = Instant::now() + TAKEN_WITHIN;
        while self.ring.room() < all && Instant::now() < deadline && self.port.ended().is_none() {
            // Not libc's sleep, in which `pthread_cancel` would end the thread.
            let _ = rustix::thread::nanosleep(&LOOK_AGAIN);
        }
    }
}
