//! The sending side of a handle: the transmit ring, and the waits for room in it.
//!
//! It has nothing in common with the receiving side but the port's eventfd and connection, of which each side's sleeps are told by
//! themselves: one thread can send while another receives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_client::{Port, TxRing};
use rustix::time::Timespec;

use crate::shared::Shared;
use crate::source;
use crate::wait::Sleep;

/// What a non-blocking sender without room is told.
const RING_FULL: &str = "send: the ring is full: the switch has not taken earlier frames yet";
/// How often a non-blocking sender without room asks whether the port has ended: one system call.
const ENDED_EVERY: u32 = 64;
/// Longest wait of a sender for room in the ring: a switch that takes no frame for so long hangs.
const ROOM_WITHIN: Duration = Duration::from_secs(5);
/// Shortest and longest frame that can be sent.
const FRAME: std::ops::RangeInclusive<usize> = 14..=65_535;
/// Longest wait at the end of a handle for the switch to take what was sent.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How often that wait looks.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

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

    /// Sends a frame. Waits for room if the handle blocks, until a request to break.
    #[inline]
    pub fn send(&mut self, frame: &[u8], shared: &Shared) -> Result<(), String> {
        if !FRAME.contains(&frame.len()) {
            return Err(format!("send: a frame has {} to {} bytes, not {}", FRAME.start(), FRAME.end(), frame.len()));
        }
        if self.push(frame) { Ok(()) } else { self.send_without_room(frame, shared) }
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
    fn send_without_room(&mut self, frame: &[u8], shared: &Shared) -> Result<(), String> {
        if shared.nonblocking.load(Ordering::Relaxed) {
            let asks = self.refused.is_multiple_of(ENDED_EVERY);
            self.refused = self.refused.wrapping_add(1);
            let why = if asks { self.port.ended() } else { None };
            return Err(why.map_or_else(|| RING_FULL.to_owned(), |why| format!("send: {why}")));
        }
        let deadline = Instant::now() + ROOM_WITHIN;
        loop {
            if let Some(why) = self.port.ended() {
                return Err(format!("send: {why}"));
            }
            if shared.breaker.is_asked() {
                return Err("send: pcap_breakloop has ended the wait for room in the ring".to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("send: the switch has taken no frame for {} s", ROOM_WITHIN.as_secs()));
            }
            self.wait(left, shared).map_err(|error| format!("send: {error}"))?;
            if self.push(frame) {
                return Ok(());
            }
        }
    }

    /// Sleeps until there may be room, or for another reason to look.
    fn wait(&mut self, longest: Duration, shared: &Shared) -> io::Result<()> {
        let sleep = match self.sleep.take() {
            Some(sleep) => sleep,
            None => Sleep::new(&source::descriptors(&self.port), &shared.breaker)?,
        };
        let sleep = self.sleep.insert(sleep);
        let slept = if self.ring.want_call() { Ok(()) } else { sleep.sleep(Some(longest)).map(|_| ()) };
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
