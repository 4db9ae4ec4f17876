//! The NIC's packet buffer (SDM 13.4.16): frames for which the guest has given no descriptors yet.
//!
//! Such frames are copied to 512 KiB of the port's own memory, and go before all others once there are descriptors. Without
//! the buffer, each pause of a guest longer than its ring lost frames. While the ring has descriptors the buffer costs a test
//! per delivery.
//!
//! - A frame in the buffer counts as delivered (a sender's share is charged when the frame is taken in) and in RNBC.
//! - A frame that finds no room in the buffer counts as `receiver_full`, in MPC and as RXO.
//! - A reset, receiving turned off, a ring that is moved, a lost link, bus mastering taken away and another guest empty the
//!   buffer.
//! - The port's poller counts as `buffer_lost` what is lost so, or refused later because the guest has changed its filters
//!   (`Output::count_late`). Such a frame has also counted as delivered.
//!
//! A write of RDT by message wakes the poller if frames wait. Where no message comes (mapped registers, the status block),
//! the poller looks after 100 us, and then twice as late after each look in vain, up to 3.2 ms (`Device::ring`).

use std::collections::VecDeque;
use std::io;

use ringway_memory::{HEAD_BYTES, Mapping};
use ringway_switch::{Batch, BatchStorage, Frame, Offload};

use ringway_port::copy;

/// A frame takes a multiple of this many bytes.
const UNIT: usize = 64;
/// Most frames in one batch of [`PacketBuffer::drain`].
const SHOWN: usize = 64;

/// A queue of copied frames in the device's own memory.
#[derive(Debug)]
pub struct PacketBuffer {
    memory: Mapping,
    frames: VecDeque<Stored>,
    /// Where the next frame is stored, if it fits there.
    next: usize,
    shown: Option<BatchStorage>,
}

#[derive(Debug)]
struct Stored {
    at: usize,
    len: usize,
    offload: Option<Offload>,
}

impl Stored {
    fn end(&self) -> usize {
        self.at + units(self.len)
    }
}

/// Returns the bytes that a frame of `len` bytes takes.
fn units(len: usize) -> usize {
    len.max(1).next_multiple_of(UNIT)
}

impl PacketBuffer {
    /// Makes a buffer of `bytes` bytes, rounded up to whole units.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn new(bytes: usize) -> io::Result<PacketBuffer> {
        let bytes = units(bytes);
        Ok(PacketBuffer {
            memory: Mapping::private(bytes)?,
            frames: VecDeque::with_capacity(bytes / UNIT),
            next: 0,
            shown: Some(BatchStorage::new(SHOWN)),
        })
    }

    /// Returns true if no frame waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Estimates how many frames of `len` bytes fit now, and how many fit into an empty buffer.
    #[must_use]
    pub fn room(&self, len: usize) -> (usize, usize) {
        let (bytes, each) = (self.memory.bytes(), units(len));
        let used = match self.frames.front() {
            None => 0,
            Some(first) if self.next > first.at => self.next - first.at,
            Some(first) => bytes - (first.at - self.next),
        };
        ((bytes - used) / each, bytes / each)
    }

    /// Appends a copy of a frame. Returns false if there is no room.
    pub fn put(&mut self, frame: &Frame<'_, '_>) -> bool {
        let Some(at) = self.place(units(frame.len())) else { return false };
        let Some(room) = self.memory.view(at, frame.len()) else { return false };
        copy::write(room, frame);
        let stored = Stored { at, len: frame.len(), offload: frame.offload().copied() };
        self.next = stored.end();
        self.frames.push_back(stored);
        true
    }

    /// Returns where `bytes` contiguous bytes are free: after the last frame, or at the beginning before the first.
    fn place(&self, bytes: usize) -> Option<usize> {
        let (start, end) = match self.frames.front() {
            None => (0, self.memory.bytes()),
            Some(first) if self.next > first.at && self.next + bytes > self.memory.bytes() => (0, first.at),
            Some(first) if self.next > first.at => (self.next, self.memory.bytes()),
            Some(first) => (self.next, first.at),
        };
        (start + bytes <= end).then_some(start)
    }

    /// Calls `take` with batches of the oldest frames, and removes as many frames as it returns. Ends when `take`
    /// leaves some, or when the buffer is empty.
    pub fn drain(&mut self, mut take: impl FnMut(&Batch<'_>) -> usize) {
        let mut all = true;
        while all && !self.frames.is_empty() {
            let mut batch = self.shown.take().unwrap_or_else(|| BatchStorage::new(SHOWN)).into_batch();
            for stored in self.frames.iter().take(SHOWN) {
                let Some(bytes) = self.memory.view(stored.at, stored.len) else { break };
                let (head, rests) = batch.draft();
                bytes.read_head(stored.len, head);
                rests.extend(bytes.behind(HEAD_BYTES));
                batch.seal(stored.len.min(HEAD_BYTES), stored.offload);
            }
            let (shown, taken) = (batch.len(), take(&batch));
            self.shown = Some(batch.into_storage());
            self.frames.drain(..taken.min(shown));
            all = taken == shown;
        }
    }

    /// Removes all frames. Returns their number.
    pub fn clear(&mut self) -> u64 {
        self.next = 0;
        self.frames.drain(..).count() as u64
    }
}
