//! Notification suppression in virtqueues (virtio 1.3, 2.7.7, 2.7.10 and 2.8.10).
//!
//! Kicks (the driver publishes, the device is notified) and calls (the device publishes, the driver is notified) have the
//! same rules: the side to be notified *asks* in its part of the ring; the other side publishes and then reads whether it was
//! asked. Both do store, full fence, load, so that at least one of the two sees the other: a side that asks looks once more
//! before it sleeps. loom checks this handshake (`tests/loom_suppression.rs`).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU16, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU16, Ordering, fence};

/// VIRTQ_AVAIL_F_NO_INTERRUPT and VIRTQ_USED_F_NO_NOTIFY.
const NO: u16 = 1;
/// RING_EVENT_FLAGS_ENABLE, DISABLE and DESC.
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const DESC: u16 = 2;
/// The wrap counter in a packed ring's event.
const WRAP: u16 = 1 << 15;

/// What one side of a split ring asks for.
#[derive(Clone, Copy, Debug)]
pub struct SplitWish<'a> {
    /// Flags of the side's ring.
    pub flags: &'a AtomicU16,
    /// The index it waits for, with VIRTIO_F_EVENT_IDX.
    pub event: Option<&'a AtomicU16>,
}

impl SplitWish<'_> {
    /// Asks to be told when entry `at` is published. The caller must look once more afterwards, and must not sleep if it
    /// is there.
    #[inline]
    pub fn ask(self, at: u16) {
        match self.event {
            Some(event) => event.store(at.to_le(), Ordering::Relaxed),
            None => self.flags.store(0, Ordering::Relaxed),
        }
        fence(Ordering::SeqCst);
    }

    /// Asks not to be told. With an event index there is nothing to do: it stays where it was, and is passed once in 65,536
    /// entries.
    #[inline]
    pub fn decline(self) {
        if self.event.is_none() {
            self.flags.store(NO.to_le(), Ordering::Relaxed);
        }
    }

    /// Whether the other side asked to be told of what was published when the index moved from `old` to `new`. The caller
    /// has fenced in between.
    #[inline]
    #[must_use]
    pub fn is_wanted(self, old: u16, new: u16) -> bool {
        match self.event {
            Some(event) => {
                let event = u16::from_le(event.load(Ordering::Relaxed));
                new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
            }
            None => new != old && u16::from_le(self.flags.load(Ordering::Relaxed)) & NO == 0,
        }
    }
}

/// What one side of a packed ring asks for: its event suppression structure.
#[derive(Clone, Copy, Debug)]
pub struct PackedWish<'a> {
    /// The descriptor it waits for, and its wrap counter in the highest bit.
    pub place: &'a AtomicU16,
    /// Whether it waits for any, none or that one.
    pub flags: &'a AtomicU16,
    /// VIRTIO_F_EVENT_IDX.
    pub event_idx: bool,
}

impl PackedWish<'_> {
    /// As [`SplitWish::ask`]; the wrap counter of `at` is in its highest bit.
    #[inline]
    pub fn ask(self, at: u16) {
        if self.event_idx {
            self.place.store(at.to_le(), Ordering::Relaxed);
            self.flags.store(DESC.to_le(), Ordering::Release);
        } else {
            self.flags.store(ENABLE.to_le(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Asks not to be told.
    #[inline]
    pub fn decline(self) {
        self.flags.store(DISABLE.to_le(), Ordering::Relaxed);
    }

    /// As [`SplitWish::is_wanted`]: `passed` descriptors of a ring of `size` were published, and the next is `new`.
    #[inline]
    #[must_use]
    pub fn is_wanted(self, passed: u32, new: u16, size: u16) -> bool {
        if passed == 0 {
            return false;
        }
        match u16::from_le(self.flags.load(Ordering::Acquire)) & 3 {
            DISABLE => false,
            // After more than a lap every place was passed, whatever its wrap counter.
            DESC if self.event_idx && passed <= size.into() => {
                let event = u16::from_le(self.place.load(Ordering::Relaxed));
                // Places of the lap before are one ring's size lower.
                let lap = if (event ^ new) & WRAP == 0 { 0 } else { u32::from(size) };
                let back = (u32::from(new & !WRAP) + lap).wrapping_sub((event & !WRAP).into());
                back.wrapping_sub(1) < passed
            }
            _ => true,
        }
    }
}
