//! Frames that leave a receive ring together with their buffers, for programs that keep frames without copying them.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_abi::slot::NS_BUF_CHANGED;
use ringway_abi::{Layout, Slot};
use ringway_memory::Mapping;

use super::RxRing;

/// Why [`RxRing::exchange`] took no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExchanged {
    /// There is no frame.
    Empty,
    /// The next frame spans several slots: [`RxRing::drain`] takes it.
    SeveralSlots,
}

/// A buffer of a port's memory that no slot names. Its owner may keep it as long as it likes, also after the port is gone.
#[derive(Debug)]
pub struct Buffer {
    index: u32,
    bytes: u32,
    start: NonNull<u8>,
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointer refers to the mapping that is kept next to it, which is Send.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference only reads, and nobody else writes to a buffer that no slot names.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Returns the extra buffers of a port that was attached with `layout`. Call once for each port: the caller owns them.
    pub(crate) fn extra(mapping: &Arc<Mapping>, layout: &Layout) -> Vec<Buffer> {
        let bytes = layout.shape.buffer_size;
        let buffer = |index| {
            let start = NonNull::new(mapping.view(layout.buffer(index), bytes as usize)?.as_ptr())?;
            Some(Buffer { index, bytes, start, _mapping: Arc::clone(mapping) })
        };
        (layout.first_extra_buffer()..layout.buffer_count).filter_map(buffer).collect()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as `_mapping` lives, and `bytes` long. The client owns the buffer, so the switch does not
        // write to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes as usize) }
    }
}

impl RxRing {
    /// Takes the next frame out of the ring with its buffer, which comes in place of `spare`; `spare` takes its place in
    /// the ring. Returns the length of the frame, which begins at the buffer's start.
    ///
    /// Slots go back to the switch as with [`RxRing::drain`].
    ///
    /// # Errors
    /// See [`NotExchanged`]. `spare` is unchanged.
    ///
    /// # Panics
    /// `spare` belongs to another port.
    #[inline]
    pub fn exchange(&mut self, spare: &mut Buffer) -> Result<usize, NotExchanged> {
        assert!(self.memory.start(spare.index, 0).0 == spare.start, "the buffer belongs to another port");
        if self.head == self.tail && self.available() == 0 {
            self.give_back();
            return Err(NotExchanged::Empty);
        }
        let word = self.memory.word(self.head);
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let (start, len) = self.memory.start(slot.buffer, slot.len.into());
        if slot.more() || !self.gathered.is_empty() || slot.buffer >= self.memory.buffer_count {
            return Err(NotExchanged::SeveralSlots);
        }
        let left = Slot { buffer: spare.index, len: 0, flags: NS_BUF_CHANGED };
        word.store(left.to_word(), Ordering::Relaxed);
        (spare.index, spare.start) = (slot.buffer, start);
        self.head = self.memory.after(self.head);
        if self.memory.distance(self.published, self.head) >= self.memory.slots / 8 {
            self.give_back();
        }
        Ok(len)
    }
}
