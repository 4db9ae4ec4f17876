//! The driver's memory: words that the device reads and writes too, and the bytes of buffers.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use ringway_memory::{Mapping, View, prefetch_read, prefetch_write};

use super::FRAME_AT;

/// A power of two of words; places beyond the last count from the first again.
#[derive(Debug)]
pub struct Words<T> {
    start: NonNull<T>,
    mask: usize,
    /// Keeps the words mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the words are atomic and stay mapped as long as this is.
unsafe impl<T: Send + Sync> Send for Words<T> {}

impl<T> Words<T> {
    /// The word at this place.
    #[inline]
    pub fn at(&self, place: u32) -> &T {
        // SAFETY: `mask + 1` words begin at `start`, mapped as long as self.
        unsafe { self.start.add(place as usize & self.mask).as_ref() }
    }

    fn new(words: Option<&[T]>, mapping: &Arc<Mapping>) -> io::Result<Words<T>> {
        match words {
            Some(words) if words.len().is_power_of_two() => {
                let start = NonNull::from(words).cast();
                Ok(Words { start, mask: words.len() - 1, _mapping: Arc::clone(mapping) })
            }
            _ => Err(io::Error::other("a ring has no place in the memory")),
        }
    }
}

fn part(mapping: &Mapping, at: usize, bytes: usize) -> Option<View<'_>> {
    mapping.view(at, bytes)
}

/// `count` 16-bit words at `at`.
pub fn words16(mapping: &Arc<Mapping>, at: usize, count: u32) -> io::Result<Words<AtomicU16>> {
    Words::new(part(mapping, at, count as usize * 2).and_then(|view| view.words16()), mapping)
}

/// `count` 32-bit words at `at`.
pub fn words32(mapping: &Arc<Mapping>, at: usize, count: u32) -> io::Result<Words<AtomicU32>> {
    Words::new(part(mapping, at, count as usize * 4).and_then(|view| view.words32()), mapping)
}

/// `count` 64-bit words at `at`.
pub fn words64(mapping: &Arc<Mapping>, at: usize, count: u32) -> io::Result<Words<AtomicU64>> {
    Words::new(part(mapping, at, count as usize * 8).and_then(|view| view.words64()), mapping)
}

/// The buffers of one queue.
///
/// The driver trusts the device not to write buffers that it has given back; where a buffer is and how long it is, it
/// never learns from the device.
#[derive(Debug)]
pub struct Buffers {
    start: NonNull<u8>,
    count: usize,
    stride: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the bytes stay mapped as long as this is, and `&mut self` is needed to write them.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers of `stride` bytes at `at`.
    pub fn new(mapping: &Arc<Mapping>, at: usize, count: u32, stride: usize) -> io::Result<Buffers> {
        let view = part(mapping, at, count as usize * stride);
        let start = view.and_then(|view| NonNull::new(view.as_ptr()));
        let start = start.ok_or_else(|| io::Error::other("the buffers have no place in the memory"))?;
        Ok(Buffers { start, count: count as usize, stride, _mapping: Arc::clone(mapping) })
    }

    /// Bytes of a buffer from `from` on.
    pub fn capacity(&self, from: usize) -> usize {
        self.stride - from
    }

    /// Where `len` bytes from `from` on in buffer `id` are.
    #[inline]
    fn find(&self, id: u16, from: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = usize::from(id) < self.count && from <= self.stride && len <= self.stride - from;
        // SAFETY: inside the buffer, which is inside the mapping.
        inside.then(|| unsafe { self.start.add(usize::from(id) * self.stride + from) })
    }

    /// `len` bytes of a buffer that the driver has; `None` when it is shorter.
    #[inline]
    pub fn bytes(&self, id: u16, from: usize, len: usize) -> Option<&[u8]> {
        // SAFETY: mapped as long as self; the device has given the buffer back and does not write it.
        self.find(id, from, len).map(|start| unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// The same, to write.
    #[inline]
    pub fn bytes_mut(&mut self, id: u16, from: usize, len: usize) -> Option<&mut [u8]> {
        // SAFETY: as in `bytes`; `&mut self` keeps this driver from having them twice.
        self.find(id, from, len).map(|start| unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Starts to bring the first line of a frame near, for reading.
    #[inline]
    pub fn prefetch(&self, id: u16) {
        prefetch_read(self.start.as_ptr().wrapping_add(usize::from(id) * self.stride + FRAME_AT));
    }

    /// The same, for writing.
    #[inline]
    pub fn prefetch_mut(&self, id: u16) {
        prefetch_write(self.start.as_ptr().wrapping_add(usize::from(id) * self.stride + FRAME_AT));
    }
}
