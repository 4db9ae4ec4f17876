//! The doorbell: ring indices and wake-up wishes, in memory (VPE §4.3, thesis §4.2.3).
//!
//! Each ring pair has 256 bytes, four cache lines, each written by one side only:
//!
//! | line | written by | words |
//! |---|---|---|
//! | 0 | client | `tx.head`, `tx.wish` |
//! | 1 | switch | `tx.tail`, `tx.wish` |
//! | 2 | client | `rx.head`, `rx.wish` |
//! | 3 | switch | `rx.tail`, `rx.wish`; of ring pair 0: the port's `lost` |
//!
//! `head` and `tail` are slot numbers with netmap's meaning: on transmit the client fills slots from `head` up to `tail`, on
//! receive the client reads them from `head` up to `tail`; the client moves `head`, the switch moves `tail`.
//!
//! A *wish* is VPE's flag: "wake me when you move your index". It is a number: 0 means that its writer is awake and watches
//! the memory; any other value asks for one wake-up, and a new value asks for another. The waker remembers the last wish that
//! it granted, so that it neither writes to the other side's line nor wakes twice.
//!
//! `lost` is the number of frames for the port that were dropped because of its client (drop reasons `receiver_*`) since it was
//! attached, modulo 2^32. The switch writes it when it has changed, after the deliveries that changed it.
//!
//! Both sides settle the race between "no work, I sleep" and "here is work, are you asleep?" by store, full fence, load, as
//! [`WakeRequest::make`] and [`granted`] do: at least one of the two sees the other. loom checks this handshake
//! (`tests/loom_doorbell.rs`).
//!
//! The doorbell is in the client's memfd, shifted by a colour per client (`docs/decisions/doorbell-page.md`).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Bytes of the doorbell block of one ring pair.
pub const PAIR_BYTES: usize = 256;
/// First word of the client's line for transmission: an index of 32-bit words in the block of a ring pair.
pub const TX_CLIENT: usize = 0;
/// First word of the switch's line for transmission.
pub const TX_SWITCH: usize = 16;
/// First word of the client's line for reception.
pub const RX_CLIENT: usize = 32;
/// First word of the switch's line for reception.
pub const RX_SWITCH: usize = 48;
/// Words of the block of a ring pair.
pub const PAIR_WORDS: usize = PAIR_BYTES / 4;
/// Offset of the index word in a cache line.
pub const INDEX: usize = 0;
/// Offset of the wake-up request word in a cache line.
pub const WISH: usize = 1;
/// Offset, in the switch's line for reception of ring pair 0, of the number of lost frames.
pub const LOST: usize = 2;
/// Offset, in a client's line, of the word in which a client of the netmap API keeps the `tail` that its program was told, counted
/// from the first `tail` of a new ring. The switch writes it once, for a ring that does not begin there: of a pipe's end.
pub const TOLD: usize = 3;

/// A side's own wake-up request, and the number that it used last.
#[derive(Debug, Default)]
pub struct WakeRequest {
    number: u32,
    open: bool,
}

impl WakeRequest {
    /// No request, after others in the same word up to the one with this number.
    #[must_use]
    pub fn after(number: u32) -> Self {
        Self { number, open: false }
    }

    /// The number of the last request.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Requests a wake-up at the next move of the other side's index. The caller must look at that index once more
    /// afterwards, and must not sleep if it has moved.
    #[inline]
    pub fn make(&mut self, word: &AtomicU32) {
        self.number = if self.number == u32::MAX { 1 } else { self.number + 1 };
        self.open = true;
        word.store(self.number, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Withdraws the request: this side polls the memory again.
    #[inline]
    pub fn withdraw(&mut self, word: &AtomicU32) {
        if self.open {
            self.open = false;
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Returns true while a request is outstanding.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }
}

/// A wake-up request that several threads and processes make in one word: each asks anew before it sleeps.
#[derive(Clone, Copy, Debug)]
pub struct SharedWakeRequest<'a> {
    /// The request, for the other side.
    pub wish: &'a AtomicU32,
    /// The number of the last request, whoever made it.
    pub number: &'a AtomicU32,
    /// How many wait. One that was killed stays counted, and costs wake-ups that nobody wants.
    pub waiters: &'a AtomicU32,
}

impl SharedWakeRequest<'_> {
    /// Requests a wake-up for one more waiter, as [`WakeRequest::make`] does.
    pub fn make(&self) {
        // Acquire: what a waiter that has left before looked at is older than this request.
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let mut number = self.number.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if number == 0 {
            number = self.number.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        }
        // Ordered against the withdrawal by a waiter that leaves at the same time.
        self.wish.swap(number, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Ends a wait. Withdraws the request, unless another one waits.
    pub fn withdraw(&self) {
        // Read before this waiter leaves: a request that is made afterwards has another number, and stays.
        let seen = self.wish.load(Ordering::Relaxed);
        let fewer = |waiters: u32| waiters.checked_sub(1);
        let before = self.waiters.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer);
        if seen != 0 && before.is_ok_and(|waiters| waiters == 1) {
            let _ = self.wish.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Orders the store of an index before the load of the other side's wake-up request. Call once for each batch, before
/// [`granted`].
#[inline]
pub fn publish_fence() {
    fence(Ordering::SeqCst);
}

/// Call after moving an index and [`publish_fence`]. Returns true if the other side has requested a wake-up, at most
/// once for each request.
#[inline]
pub fn granted(wish: &AtomicU32, last: &AtomicU32) -> bool {
    let number = wish.load(Ordering::Relaxed);
    number != 0 && number != last.load(Ordering::Relaxed) && last.swap(number, Ordering::Relaxed) != number
}
