//! The doorbell: ring indices and wake-up wishes, in memory (VPE §4.3, thesis §4.2.3).
//!
//! Each ring pair has 256 bytes, four cache lines, each written by one side only:
//!
//! | line | written by | words |
//! |---|---|---|
//! | 0 | client | `tx.head`, `tx.wish` |
//! | 1 | switch | `tx.tail`, `tx.wish` |
//! | 2 | client | `rx.head`, `rx.wish` |
//! | 3 | switch | `rx.tail`, `rx.wish` |
//!
//! `head` and `tail` are slot numbers with netmap's meaning: on transmit the client fills slots from `head` up to `tail`, on
//! receive the client reads them from `head` up to `tail`; the client moves `head`, the switch moves `tail`.
//!
//! A *wish* is VPE's flag: "wake me when you move your index". It is a number: 0 means that its writer is awake and watches
//! the memory; any other value asks for one wake-up, and a new value asks for another. The waker remembers the last wish that
//! it granted, so that it neither writes to the other side's line nor wakes twice.
//!
//! Both sides settle the race between "no work, I sleep" and "here is work, are you asleep?" by store, full fence, load, as
//! [`Wish::make`] and [`granted`] do: at least one of the two sees the other. loom checks this handshake
//! (`tests/loom_doorbell.rs`).
//!
//! The doorbell is in the client's memfd, shifted by a colour per client (`docs/decisions/doorbell-page.md`).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Bytes of the doorbell for one ring pair.
pub const PAIR_BYTES: usize = 256;
/// Word (32 bits each) where a side's line begins, within a pair's block.
pub const TX_CLIENT: usize = 0;
/// See [`TX_CLIENT`].
pub const TX_SWITCH: usize = 16;
/// See [`TX_CLIENT`].
pub const RX_CLIENT: usize = 32;
/// See [`TX_CLIENT`].
pub const RX_SWITCH: usize = 48;
/// Words of a pair's block.
pub const PAIR_WORDS: usize = PAIR_BYTES / 4;
/// Word of the index within a line.
pub const INDEX: usize = 0;
/// Word of the wish within a line.
pub const WISH: usize = 1;

/// A side's own wish, and the number it used last.
#[derive(Debug, Default)]
pub struct Wish {
    number: u32,
    open: bool,
}

impl Wish {
    /// Asks to be woken at the next move of the other side's index. The caller must look at that index once more
    /// afterwards, and must not sleep if it moved.
    #[inline]
    pub fn make(&mut self, word: &AtomicU32) {
        self.number = if self.number == u32::MAX { 1 } else { self.number + 1 };
        self.open = true;
        word.store(self.number, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes the wish back: the writer watches the memory again.
    #[inline]
    pub fn withdraw(&mut self, word: &AtomicU32) {
        if self.open {
            self.open = false;
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a wish stands.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }
}

/// Orders an index store before the look at the other side's wish: once per batch, before [`granted`].
#[inline]
pub fn publish_fence() {
    fence(Ordering::SeqCst);
}

/// After moving an index and [`publish_fence`]: whether the other side wishes to be woken, at most once per wish.
#[inline]
pub fn granted(wish: &AtomicU32, last: &AtomicU32) -> bool {
    let number = wish.load(Ordering::Relaxed);
    number != 0 && number != last.load(Ordering::Relaxed) && last.swap(number, Ordering::Relaxed) != number
}
