//! Synchronisation of one ring: what netmap's kernel does with a ring inside `NIOCTXSYNC`, `NIOCRXSYNC` and `poll`.
//!
//! The program moves `head` and `cur` in the ring's header. A synchronisation checks them against what the program owns, copies `head` to the
//! doorbell and `tail` from it. What the kernel would keep about a ring is kept in the client's own cache line of the doorbell, whose first
//! two words the switch reads, so that processes that share a ring agree about it. All that share a ring take turns by a lock behind `netmap_if`.
//! A process that stands still in its turn for a second loses it, so that `head` and `tail` move by compare-and-swap:
//!
//! | word | holds |
//! |---|---|
//! | 0, 1 | the published `head`, and the wish for a call |
//! | 2 | the number of the last wish |
//! | 3 | the `tail` that the program was told, counted from the first one |
//! | 4 | the switch's last wish that was granted |
//! | 5 | the waiters of all processes; one that was killed stays counted, and costs calls that nobody wants |
//! | 6, 7 | at least the slots by which the told `tail` has moved, a 64-bit count: `tail` repeats, the count does not |

use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use ringway_abi::Slot;
use ringway_abi::doorbell::{
    INDEX, PAIR_WORDS, RX_CLIENT, RX_SWITCH, SharedWakeRequest, TOLD, TX_CLIENT, TX_SWITCH, WISH, granted,
    publish_fence,
};
use ringway_abi::layout::netmap_ring;
use ringway_abi::slot::NS_INDIRECT;

use crate::lock::Lock;
use crate::user;

const NUMBER: usize = 2;
const GRANTED: usize = 4;
const WAITERS: usize = 5;
const MOVED: usize = 6;
/// `ring->ts`.
const TS: usize = 40;

/// The direction of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    Tx,
    Rx,
}

/// Places of a ring in this process's mapping, all inside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// `netmap_ring` and its slots.
    pub(crate) header: NonNull<u8>,
    /// The doorbell's block of the ring pair.
    pub(crate) bell: NonNull<u8>,
    /// The lock.
    pub(crate) turn: NonNull<u8>,
    /// Buffer 0.
    pub(crate) buffers: NonNull<u8>,
    pub(crate) slots: u32,
    pub(crate) buffer_count: u32,
    pub(crate) buffer_size: u32,
    pub(crate) dir: Dir,
    /// It belongs to an end of a pipe: the other end's sender waits for the slots that this one returns.
    pub(crate) is_pipe: bool,
}

/// The words of a ring that a synchronisation compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Positions {
    /// The program's, in the ring's header.
    head: u32,
    cur: u32,
    tail: u32,
    /// The published `head` and the `tail` that the program was told, in the doorbell.
    index: u32,
    told: u32,
}

/// Result of a synchronisation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Synced {
    /// `cur` and `tail` differ: there is something for the program to do.
    pub(crate) ready: bool,
    /// The switch asked for a kick.
    pub(crate) kick: bool,
    /// Something moved: `head` or `tail`.
    pub(crate) moved: bool,
    /// The program's `head` or `cur` was out of bounds; the ring was reset.
    pub(crate) bad: bool,
}

impl Ring {
    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset < netmap_ring::SLOTS);
        // SAFETY: inside the ring's header, which is mapped as long as the file is pinned. All access to shared memory is atomic.
        unsafe { self.header.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn bell(&self, word: usize) -> &AtomicU32 {
        debug_assert!(word < PAIR_WORDS);
        // SAFETY: inside the doorbell's block, which is mapped as long as the file is pinned.
        unsafe { self.bell.add(word * 4).cast::<AtomicU32>().as_ref() }
    }

    /// The slots by which `tail` has moved for the program, in all processes' synchronisations.
    pub(crate) fn moved(&self) -> &AtomicU64 {
        // SAFETY: inside the client's line of the doorbell's block, which is aligned to the line and mapped as long as the file is pinned.
        unsafe { self.bell.add((self.client() + MOVED) * 4).cast::<AtomicU64>().as_ref() }
    }

    /// The lock of those who synchronise the ring. The switch does not use its cache line, and no structure of netmap's names it.
    pub(crate) fn lock(&self) -> &Lock {
        // SAFETY: inside the port's own part, at the beginning of a cache line, which is mapped as long as the file is pinned.
        Lock::in_word(unsafe { self.turn.cast::<AtomicU64>().as_ref() })
    }

    fn slot(&self, index: u32) -> &[AtomicU64; 2] {
        debug_assert!(index < self.slots);
        // SAFETY: the ring has `slots` slots of 16 bytes after its header.
        unsafe { self.header.add(netmap_ring::SLOTS + index as usize * 16).cast::<[AtomicU64; 2]>().as_ref() }
    }

    const fn client(&self) -> usize {
        match self.dir {
            Dir::Tx => TX_CLIENT,
            Dir::Rx => RX_CLIENT,
        }
    }

    const fn switch(&self) -> usize {
        match self.dir {
            Dir::Tx => TX_SWITCH,
            Dir::Rx => RX_SWITCH,
        }
    }

    /// The first `tail` of a ring.
    const fn first_tail(&self) -> u32 {
        match self.dir {
            Dir::Tx => self.slots - 1,
            Dir::Rx => 0,
        }
    }

    const fn add(&self, slot: u32, steps: u32) -> u32 {
        let sum = slot + steps;
        if sum >= self.slots { sum - self.slots } else { sum }
    }

    const fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    /// Reads what the program and earlier synchronisations have written.
    fn positions(&self) -> Positions {
        // The program's `head` first: what it was told before it moved there is then read, too.
        let header = |at: usize| self.word(at).load(Ordering::Acquire);
        let bell = |at: usize| self.bell(self.client() + at).load(Ordering::Acquire);
        Positions {
            head: header(netmap_ring::HEAD),
            cur: header(netmap_ring::CUR),
            tail: header(netmap_ring::TAIL),
            index: bell(INDEX),
            told: bell(TOLD),
        }
    }

    /// The `tail` that the program was told last, from its word in the doorbell.
    fn told(&self, word: u32) -> u32 {
        self.add(word % self.slots, self.first_tail())
    }

    /// The switch's `tail`.
    fn tail(&self) -> u32 {
        self.bell(self.switch() + INDEX).load(Ordering::Acquire) % self.slots
    }

    /// Returns true if the program's `head` and `cur` lie in what it owns.
    fn is_good(&self, at: &Positions) -> bool {
        // The slots from `published` up to `told`: `head` and then `cur` lie there, in this order.
        let published = at.index % self.slots;
        let own = self.distance(published, self.told(at.told));
        at.head < self.slots
            && at.cur < self.slots
            && self.distance(published, at.head) <= self.distance(published, at.cur)
            && self.distance(published, at.cur) <= own
    }

    /// Returns true if the program has moved `head` since the last synchronisation.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.word(netmap_ring::HEAD).load(Ordering::Relaxed) != self.bell(self.client() + INDEX).load(Ordering::Relaxed)
    }

    /// Returns true if the switch may sleep until `head` moves.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.dir == Dir::Tx || self.is_pipe
    }

    /// Synchronises the ring.
    pub(crate) fn sync(&self) -> Synced {
        let mut synced = Synced::default();
        // Another process that moves a position at the same time makes this one begin again.
        while self.sync_once(&mut synced).is_none() {
            std::hint::spin_loop();
        }
        self.stamp();
        synced
    }

    /// Synchronises the ring. `None`: another process has moved a position meanwhile.
    #[inline]
    fn sync_once(&self, synced: &mut Synced) -> Option<()> {
        let mut at = self.positions();
        if !self.is_good(&at) {
            self.reset(&mut at)?;
            synced.bad = true;
        }
        if at.head != at.index {
            if self.dir == Dir::Tx {
                self.copy_indirect(at.index % self.slots, at.head);
            }
            self.replace(self.bell(self.client() + INDEX), at.index, at.head)?;
            synced.moved = true;
            if self.is_waited_for() {
                publish_fence();
                synced.kick |= granted(self.bell(self.switch() + WISH), self.bell(self.client() + GRANTED));
            }
        }
        let tail = self.tail();
        let told = self.distance(self.first_tail(), tail);
        if told != at.told {
            // The count first: if the thread leaves in between, the next synchronisation counts more than it has to, and not less.
            let steps = self.distance(at.told % self.slots, told);
            self.moved().fetch_add(steps.into(), Ordering::Relaxed);
            self.replace(self.bell(self.client() + TOLD), at.told, told)?;
            synced.moved = true;
        }
        // After the doorbell: the program moves `head` up to here, and another process checks that against the doorbell.
        if tail != at.tail {
            self.replace(self.word(netmap_ring::TAIL), at.tail, tail)?;
        }
        synced.ready = at.cur != tail;
        Some(())
    }

    #[inline]
    fn replace(&self, word: &AtomicU32, old: u32, new: u32) -> Option<()> {
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).ok().map(drop)
    }

    /// Resets `head` and `cur` to what the switch has, and takes bad buffers and lengths out of the slots that the program owns. `None`: the
    /// positions have changed, and may be good.
    #[cold]
    fn reset(&self, at: &mut Positions) -> Option<()> {
        fence(Ordering::SeqCst);
        if self.positions() != *at {
            return None;
        }
        let published = at.index % self.slots;
        (at.head, at.cur) = (published, published);
        self.word(netmap_ring::HEAD).store(published, Ordering::Relaxed);
        self.word(netmap_ring::CUR).store(published, Ordering::Relaxed);
        let mut slot_at = published;
        for _ in 0..self.distance(published, self.told(at.told)) {
            let word = &self.slot(slot_at)[0];
            let mut slot = Slot::from_word(word.load(Ordering::Relaxed));
            if slot.buffer < 2 || slot.buffer >= self.buffer_count {
                (slot.buffer, slot.len) = (0, 0);
                word.store(slot.to_word(), Ordering::Relaxed);
            } else if u32::from(slot.len) > self.buffer_size {
                slot.len = 0;
                word.store(slot.to_word(), Ordering::Relaxed);
            }
            slot_at = self.add(slot_at, 1);
        }
        Some(())
    }

    /// Copies the frames that are in the program's own memory (`NS_INDIRECT`) into the buffers of their slots. If the
    /// program cannot read such memory itself, the frame has no bytes, and the switch drops it as too short.
    #[inline]
    fn copy_indirect(&self, from: u32, to: u32) {
        let mut at = from;
        while at != to {
            let words = self.slot(at);
            let slot = Slot::from_word(words[0].load(Ordering::Relaxed));
            if slot.flags & NS_INDIRECT != 0 {
                self.copy_one(words, slot);
            }
            at = self.add(at, 1);
        }
    }

    #[cold]
    fn copy_one(&self, words: &[AtomicU64; 2], slot: Slot) {
        let from = words[1].load(Ordering::Relaxed);
        let fits = u32::from(slot.len) <= self.buffer_size && (2..self.buffer_count).contains(&slot.buffer);
        let good = fits && {
            // SAFETY: buffer and length were checked against the mapping, and the program owns the slot's buffer.
            let into = unsafe {
                let start = self.buffers.add(slot.buffer as usize * self.buffer_size as usize);
                std::slice::from_raw_parts_mut(start.as_ptr(), slot.len.into())
            };
            user::read_into(from, into).is_ok()
        };
        if !good {
            words[0].store(Slot { len: 0, ..slot }.to_word(), Ordering::Relaxed);
        }
    }

    /// Writes the time to `ring->ts`. netmap does so with and without `NR_TIMESTAMP` (`dev.netmap.no_timestamp` is 0).
    fn stamp(&self) {
        let now = crate::clock::now(libc::CLOCK_REALTIME);
        for (at, value) in [(TS, now.tv_sec), (TS + 8, now.tv_nsec / 1000)] {
            // SAFETY: inside the ring's header, aligned.
            let word = unsafe { self.header.add(at).cast::<AtomicI64>().as_ref() };
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Asks the switch for a call when `tail` moves. The caller synchronises once more before it sleeps.
    pub(crate) fn ask(&self) {
        self.wake_request().make();
    }

    /// Ends a wait that began with [`Ring::ask`].
    pub(crate) fn withdraw(&self) {
        self.wake_request().withdraw();
    }

    fn wake_request(&self) -> SharedWakeRequest<'_> {
        let word = |word: usize| self.bell(self.client() + word);
        SharedWakeRequest { wish: word(WISH), number: word(NUMBER), waiters: word(WAITERS) }
    }
}
