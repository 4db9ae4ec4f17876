//! The sending side of a handle: the transmit ring, and the waits for room in it and for other senders.
//!
//! The two sides share only the port's eventfd and connection, and each side waits for these with an epoll instance of its own. So one
//! thread can send while another receives.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
/// Longest time in which the switch takes no frame while a sender waits: a switch that takes none for so long hangs.
const ROOM_WITHIN: Duration = Duration::from_secs(5);
const NO_ROOM: &str = "send: the switch has taken no frame for 5 s";
/// The same for a sender that does not block: it waits for another one, which waits for nothing.
const TURN_WITHIN: Duration = Duration::from_millis(100);
const NO_END: &str = "send: another thread's send by this handle does not end";
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

/// Why a frame was not sent. It needs no memory, unless the port has ended or the kernel has refused the wait for room.
pub type Refusal = Cow<'static, str>;

/// The sending side, as all threads use it.
#[derive(Debug)]
pub struct Sending {
    sender: Lock<Sender>,
    /// Counts that the switch has taken frames while a sender waited for room.
    taken: AtomicU32,
}

impl Sending {
    pub fn new(sender: Sender) -> Sending {
        Sending { sender: Lock::new(sender), taken: AtomicU32::new(0) }
    }

    /// Sends a frame. Waits for other senders. If the handle blocks, waits for room, too, until a request to break.
    #[inline]
    pub fn send(&self, frame: &[u8], waiting: Waiting<'_>) -> Result<(), Refusal> {
        if !FRAME.contains(&frame.len()) {
            return Err("send: a frame has 14 to 65535 bytes".into());
        }
        let mut wait = Wait::new(waiting, &self.taken);
        let mut sender = match self.sender.try_lock() {
            Ok(sender) => sender,
            Err(_) => await_turn(&self.sender, &mut wait, Instant::now)?,
        };
        if sender.push(frame) { Ok(()) } else { sender.send_without_room(frame, &mut wait) }
    }

    /// Wakes the threads that wait for other senders, which look again at what they wait for. Async-signal-safe.
    pub fn wake(&self) {
        self.sender.wake_all();
    }
}

/// Waits for the end of other sends. So does a sender that does not block: the other one does not wait for room then.
#[cold]
fn await_turn<'a, T>(
    sender: &'a Lock<T>,
    wait: &mut Wait<'_>,
    now: impl Fn() -> Instant,
) -> Result<Guard<'a, T>, Refusal> {
    sender.wait(|busy| match busy {
        Busy::Interrupted => Err("send: the signal handler has interrupted a send by this handle".into()),
        Busy::Inherited => Err("send: the parent was sending by this handle when it forked".into()),
        Busy::Held => wait.left(now(), NO_END),
    })
}

/// The wait of one send, which begins when it is first asked how long it may last.
struct Wait<'a> {
    waiting: Waiting<'a>,
    /// Number of requests to break before the send: they do not end it.
    asked: u64,
    /// See [`Sending::taken`].
    taken: &'a AtomicU32,
    /// That number when the deadline was set, and the deadline.
    limit: Option<(u32, Instant)>,
}

impl<'a> Wait<'a> {
    #[inline]
    fn new(waiting: Waiting<'a>, taken: &'a AtomicU32) -> Wait<'a> {
        Wait { waiting, asked: waiting.breaker.asked(), taken, limit: None }
    }

    /// Returns how long the wait may last yet. It ends for the reason `over` when the switch has taken no frame for too long.
    fn left(&mut self, now: Instant, over: &'static str) -> Result<Duration, Refusal> {
        let taken = self.taken.load(Ordering::Relaxed);
        let (_, deadline) = *match &mut self.limit {
            Some(limit) if limit.0 == taken => limit,
            limit if self.waiting.nonblocking.load(Ordering::Relaxed) => limit.insert((taken, now + TURN_WITHIN)),
            limit => limit.insert((taken, now + ROOM_WITHIN)),
        };
        let left = deadline.saturating_duration_since(now);
        if left.is_zero() {
            return Err(over.into());
        }
        if self.waiting.breaker.asked() != self.asked {
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
    fn send_without_room(&mut self, frame: &[u8], wait: &mut Wait<'_>) -> Result<(), Refusal> {
        let slots = frame.len().div_ceil(self.ring.buffer_size());
        let mut room = self.ring.room();
        loop {
            if wait.waiting.nonblocking.load(Ordering::Relaxed) {
                return Err(self.refuse());
            }
            if let Some(why) = self.port.ended() {
                return Err(format!("send: {why}").into());
            }
            let left = wait.left(Instant::now(), NO_ROOM)?;
            self.await_room(slots, left, wait.waiting.breaker).map_err(|error| format!("send: {error}"))?;
            let before = std::mem::replace(&mut room, self.ring.room());
            if room != before {
                wait.taken.fetch_add(1, Ordering::Relaxed);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::tests::Sleeper;

    static BLOCKS: AtomicBool = AtomicBool::new(false);
    static DOES_NOT_BLOCK: AtomicBool = AtomicBool::new(true);

    /// Starts a send that waits for the lock, and calls `then` when it sleeps. Returns how the wait has ended. The send's clock stands
    /// still, so that no time ends the wait.
    fn while_a_sender_sleeps(lock: &Lock<()>, breaker: &Breaker, then: impl FnOnce()) -> Result<(), Refusal> {
        let (taken, sleeper, begun) = (AtomicU32::new(0), Sleeper::new(), Instant::now());
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                sleeper.begin();
                let mut wait = Wait::new(Waiting { breaker, nonblocking: &BLOCKS }, &taken);
                await_turn(lock, &mut wait, || begun).map(drop)
            });
            ringway_testing::until("the sender sleeps", || {
                assert!(!sender.is_finished(), "the send has ended");
                lock.is_contended() && sleeper.sleeps()
            });
            then();
            sender.join().unwrap()
        })
    }

    #[test]
    fn a_send_waits_for_the_end_of_another_ones_send_and_is_not_told_that_the_ring_is_full() {
        let (lock, breaker) = (Lock::new(()), Breaker::new());
        let guard = lock.try_lock().unwrap();
        assert_eq!(while_a_sender_sleeps(&lock, &breaker, || drop(guard)), Ok(()));
    }

    #[test]
    fn a_request_to_break_ends_the_wait_for_another_sender_that_goes_on() {
        let (lock, breaker) = (Lock::new(()), Breaker::new());
        let _guard = lock.try_lock().unwrap();
        let ended = while_a_sender_sleeps(&lock, &breaker, || {
            breaker.ask();
            lock.wake_all();
        });
        assert_eq!(ended, Err("send: pcap_breakloop has ended the wait for room in the ring".into()));
    }

    #[test]
    fn a_switch_that_takes_frames_slowly_ends_no_wait() {
        let (breaker, taken, begun) = (Breaker::new(), AtomicU32::new(0), Instant::now());
        let mut wait = Wait::new(Waiting { breaker: &breaker, nonblocking: &BLOCKS }, &taken);
        let mut left = |seconds| wait.left(begun + Duration::from_secs(seconds), NO_ROOM);
        assert_eq!([left(0), left(4)], [5, 1].map(|seconds| Ok(Duration::from_secs(seconds))));
        taken.fetch_add(1, Ordering::Relaxed);
        assert_eq!([left(4), left(8)], [5, 1].map(|seconds| Ok(Duration::from_secs(seconds))));
        assert_eq!(left(9), Err(NO_ROOM.into()));
    }

    #[test]
    fn a_non_blocking_send_soon_gives_a_holder_up_that_never_ends() {
        let (breaker, taken, begun) = (Breaker::new(), AtomicU32::new(0), Instant::now());
        let mut wait = Wait::new(Waiting { breaker: &breaker, nonblocking: &DOES_NOT_BLOCK }, &taken);
        let mut left = |millis| wait.left(begun + Duration::from_millis(millis), NO_END);
        assert_eq!([left(0), left(100)], [Ok(Duration::from_millis(100)), Err(NO_END.into())]);
    }
}
