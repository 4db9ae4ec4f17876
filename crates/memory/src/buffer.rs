//! Buffers that have one owner each and move between a program, its rings and its queues.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mapping::Mapping;

/// A piece of a mapping with one owner. Moving it moves no bytes. Its owner may keep it as long as it likes: it keeps the mapping.
#[derive(Debug)]
pub struct Buffer {
    index: u32,
    bytes: u32,
    start: NonNull<u8>,
    /// Keeps the memory.
    mapping: Arc<Mapping>,
}

// SAFETY: the pointer refers to the mapping that is kept next to it, which is Send.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Makes a buffer of the `bytes` bytes at offset `at`. `index` is its name: what it counts is its maker's choice. Returns `None` if
    /// the bytes are not in the mapping.
    ///
    /// # Safety
    /// Nothing else in this process refers to these bytes while the buffer exists, and no other party writes to them. (A device that the
    /// owner has told to send them may read them.)
    #[must_use]
    pub unsafe fn new(mapping: &Arc<Mapping>, index: u32, at: usize, bytes: u32) -> Option<Buffer> {
        let start = NonNull::new(mapping.view(at, bytes as usize)?.as_ptr())?;
        Some(Buffer { index, bytes, start, mapping: Arc::clone(mapping) })
    }

    /// Returns the name.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the first byte.
    #[inline]
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Becomes the buffer with the same number of bytes at `start`, in the same mapping, for rings that give one buffer for another.
    ///
    /// # Safety
    /// As with [`Buffer::new`]; and the caller takes the bytes that this buffer had.
    #[inline]
    pub unsafe fn become_other(&mut self, index: u32, start: NonNull<u8>) {
        (self.index, self.start) = (index, start);
    }

    /// Returns true if the buffer is a part of this mapping.
    #[must_use]
    pub fn is_of(&self, mapping: &Arc<Mapping>) -> bool {
        Arc::ptr_eq(&self.mapping, mapping)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as `mapping` lives, and `bytes` long. Nobody else has them, by `new`'s contract.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes as usize) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: see `deref`; `&mut self` is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes as usize) }
    }
}
