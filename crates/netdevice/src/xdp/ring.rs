//! The rings that a socket shares with the kernel (Linux, Documentation/networking/af_xdp.rst, "Rings"): one side produces, the
//! other consumes, and each publishes its free-running index.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use ringway_memory::{Kept, Mapping};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

/// What both sides of a ring have: its words, with `WORDS` words of 64 bits for an entry.
struct Ring<const WORDS: usize> {
    producer: Kept<AtomicU32>,
    consumer: Kept<AtomicU32>,
    flags: Kept<AtomicU32>,
    words: Kept<[AtomicU64]>,
    slots: u32,
    /// The index of this side: entries up to it are published.
    published: u32,
    /// The other side's index, as it was last read.
    seen: u32,
}

impl<const WORDS: usize> Ring<WORDS> {
    /// Maps the ring of `slots` entries, a power of two, at this offset of the socket.
    fn map(socket: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, slots: u32) -> io::Result<Self> {
        let flags = at.flags.ok_or_else(|| io::Error::other("this kernel has no wake-up flags: Linux 5.4 has them"))?;
        let bytes = at.desc as usize + slots as usize * WORDS * 8;
        let mapping = Arc::new(Mapping::shared_at(socket, page, bytes)?);
        let word = |offset: u64| Kept::new(&mapping, |all| all.view(offset as usize, 4)?.words32()?.first());
        let words = Kept::new(&mapping, |all| all.view(at.desc as usize, slots as usize * WORDS * 8)?.words64());
        let found = || Some((word(at.producer)?, word(at.consumer)?, word(flags)?, words?));
        let (producer, consumer, flags, words) =
            found().ok_or_else(|| io::Error::other("the kernel's ring has no aligned words"))?;
        Ok(Ring { producer, consumer, flags, words, slots, published: 0, seen: 0 })
    }

    /// Takes the index of this side from the ring's memory.
    fn go_on(mut self, published: impl Fn(&Self) -> u32) -> Self {
        self.published = published(&self);
        self
    }

    /// Returns the words of the entry with this index.
    #[inline]
    fn entry(&self, index: u32) -> &[AtomicU64; WORDS] {
        let at = (index & (self.slots - 1)) as usize * WORDS;
        self.words[at..].first_chunk().expect("the index is within the ring")
    }
}

/// A ring that this process fills: the fill ring (`WORDS` is 1) or the transmit ring (2).
pub struct Producer<const WORDS: usize> {
    ring: Ring<WORDS>,
    /// The next entry to be written.
    next: u32,
}

impl<const WORDS: usize> Producer<WORDS> {
    /// Maps the ring of `slots` entries, a power of two, at this offset of the socket. Goes on behind the entries that were published: by another
    /// process, if this is not the first one that has the socket.
    ///
    /// # Errors
    /// The kernel is too old, or has no memory. `EBUSY`: the socket is bound, and the kernel older than 6.4.
    pub fn map(socket: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, slots: u32) -> io::Result<Self> {
        let ring = Ring::map(socket, page, at, slots)?.go_on(|ring| ring.producer.load(Ordering::Acquire));
        Ok(Producer { next: ring.published, ring })
    }

    /// Returns the index of the entry that is written next.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns how many entries can be written.
    #[inline]
    pub fn free(&mut self) -> usize {
        self.ring.seen = self.ring.consumer.load(Ordering::Acquire);
        self.ring.slots.saturating_sub(self.next.wrapping_sub(self.ring.seen)) as usize
    }

    /// Writes the next entry. The caller has asked [`Producer::free`].
    #[inline]
    pub fn put(&mut self, words: [u64; WORDS]) {
        for (to, from) in self.ring.entry(self.next).iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Gives the kernel the entries that were written. Returns false if there were none.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.next == self.ring.published {
            return false;
        }
        self.ring.published = self.next;
        self.ring.producer.store(self.next, Ordering::Release);
        true
    }

    /// Returns true if the kernel takes the entries only after a system call.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag after it has found no entry: the flag must be read after the entries are published.
        fence(Ordering::SeqCst);
        needs_wakeup(&self.ring.flags)
    }

    /// Returns a view of the ring for other threads.
    pub fn queued(&self, at: &XdpRingOffset) -> Option<Queued> {
        let mapping = self.ring.producer.mapping();
        let word = |offset: u64| Kept::new(mapping, |all| all.view(offset as usize, 4)?.words32()?.first());
        let words = Kept::new(mapping, |all| all.view(at.desc as usize, self.ring.words.len() * 8)?.words64())?;
        Some(Queued { producer: word(at.producer)?, consumer: word(at.consumer)?, flags: word(at.flags?)?, words })
    }
}

/// The address of an entry that was cancelled: the kernel skips entries whose addresses are outside the memory.
const CANCELLED: u64 = u64::MAX;

/// What any thread may see of the transmit ring.
pub struct Queued {
    words: Kept<[AtomicU64]>,
    producer: Kept<AtomicU32>,
    consumer: Kept<AtomicU32>,
    flags: Kept<AtomicU32>,
}

impl Queued {
    /// Returns how many entries wait until the kernel is told of them by a system call.
    #[inline]
    pub fn untold(&self) -> u32 {
        let queued = self.producer.load(Ordering::Acquire).wrapping_sub(self.consumer.load(Ordering::Acquire));
        if queued > 0 && needs_wakeup(&self.flags) { queued } else { 0 }
    }

    /// Cancels the entries that the kernel has not taken, and calls `each` with both words of each of them. To be called by one thread
    /// at a time, and while the kernel takes no entries.
    pub fn cancel(&self, mut each: impl FnMut([u64; 2])) {
        for [address, rest] in self.waiting() {
            let was = [address, rest].map(|word| word.load(Ordering::Relaxed));
            if was[0] != CANCELLED {
                address.store(CANCELLED, Ordering::Relaxed);
                rest.store(0, Ordering::Relaxed);
                each(was);
            }
        }
    }

    /// Returns how many entries were cancelled that the kernel has not taken.
    #[must_use]
    pub fn cancelled(&self) -> u32 {
        self.waiting().map(|[address, _]| u32::from(address.load(Ordering::Relaxed) == CANCELLED)).sum()
    }

    /// Returns true if the kernel was given the entry with this index, of which the highest bit is not looked at, and the entry was not cancelled
    /// since. Of entries before the last lap of the ring it is not known whether they were cancelled.
    #[must_use]
    pub fn was_given(&self, index: u32) -> bool {
        let slots = self.words.len() / 2;
        let since = (self.producer.load(Ordering::Acquire).wrapping_sub(index) << 1).cast_signed() >> 1;
        match usize::try_from(since) {
            // It was written, and not published.
            Err(_) | Ok(0) => false,
            Ok(since) if since > slots => true,
            Ok(_) => self.words[2 * (index as usize % slots)].load(Ordering::Relaxed) != CANCELLED,
        }
    }

    /// The words of the entries that the kernel has not taken.
    fn waiting(&self) -> impl Iterator<Item = [&AtomicU64; 2]> {
        let (first, end) = (self.consumer.load(Ordering::Acquire), self.producer.load(Ordering::Acquire));
        let slots = self.words.len() / 2;
        (0..(end.wrapping_sub(first) as usize).min(slots)).map(move |ahead| {
            let at = 2 * (first.wrapping_add(ahead as u32) as usize % slots);
            [&self.words[at], &self.words[at + 1]]
        })
    }
}

#[inline]
fn needs_wakeup(flags: &AtomicU32) -> bool {
    let flags = XdpRingFlags::from_bits_retain(flags.load(Ordering::Relaxed));
    flags.contains(XdpRingFlags::XDP_RING_NEED_WAKEUP)
}

/// A ring that the kernel fills: the receive ring (`WORDS` is 2) or the completion ring (1).
pub struct Consumer<const WORDS: usize> {
    ring: Ring<WORDS>,
    /// The next entry to be read.
    next: u32,
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// Maps the ring of `slots` entries, a power of two, at this offset of the socket. Goes on behind the entries that were released: by another
    /// process, if this is not the first one that has the socket.
    ///
    /// # Errors
    /// The kernel is too old, or has no memory. `EBUSY`: the socket is bound, and the kernel older than 6.4.
    pub fn map(socket: BorrowedFd<'_>, page: u64, at: &XdpRingOffset, slots: u32) -> io::Result<Self> {
        let ring = Ring::map(socket, page, at, slots)?.go_on(|ring| ring.consumer.load(Ordering::Acquire));
        Ok(Consumer { next: ring.published, ring })
    }

    /// Returns the index of the entry that is read next.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns true if there are entries.
    #[inline]
    pub fn has_entries(&self) -> bool {
        self.ring.producer.load(Ordering::Relaxed) != self.next
    }

    /// Returns how many entries can be read.
    #[inline]
    pub fn available(&mut self) -> usize {
        self.ring.seen = self.ring.producer.load(Ordering::Acquire);
        self.ring.seen.wrapping_sub(self.next).min(self.ring.slots) as usize
    }

    /// Reads the entry that is `ahead` entries behind the next one, and leaves it. The caller has asked [`Consumer::available`].
    #[inline]
    pub fn peek(&self, ahead: usize) -> [u64; WORDS] {
        let entry = self.ring.entry(self.next.wrapping_add(ahead as u32));
        std::array::from_fn(|word| entry[word].load(Ordering::Relaxed))
    }

    /// Takes entries that were read. The kernel may write them again after [`Consumer::release`].
    #[inline]
    pub fn advance(&mut self, entries: usize) {
        self.next = self.next.wrapping_add(entries as u32);
    }

    /// Gives the kernel the entries that were taken.
    #[inline]
    pub fn release(&mut self) {
        if self.next != self.ring.published {
            self.ring.published = self.next;
            self.ring.consumer.store(self.next, Ordering::Release);
        }
    }
}
