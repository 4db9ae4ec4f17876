//! A driver's memory: words that the device reads and writes too, and the bytes of buffers.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use ringway_memory::{Mapping, View, prefetch_read, prefetch_write};

/// Most descriptors of a ring, and so most buffers.
pub const MAX_RING: u32 = 32_768;

/// A power of two of words in shared memory. Indices wrap.
#[derive(Debug)]
pub struct Words<T> {
    start: NonNull<T>,
    mask: usize,
    /// Keeps the words mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the words are atomic, and stay mapped while this lives.
unsafe impl<T: Send + Sync> Send for Words<T> {}

impl<T> Words<T> {
    /// Returns the word at this index.
    #[inline]
    pub fn at(&self, place: u32) -> &T {
        // SAFETY: `mask + 1` words begin at `start`, mapped while self lives.
        unsafe { self.start.add(place as usize & self.mask).as_ref() }
    }

    /// Returns all words.
    #[inline]
    pub fn all(&self) -> &[T] {
        // SAFETY: `mask + 1` words begin at `start`, mapped while self lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.mask + 1) }
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

/// Returns the `count` 16-bit words at offset `at`.
pub fn words16(mapping: &Arc<Mapping>, at: usize, count: u32) -> io::Result<Words<AtomicU16>> {
    Words::new(part(mapping, at, count as usize * 2).and_then(|view| view.words16()), mapping)
}

/// Returns the `count` 32-bit words at offset `at`.
pub fn words32(mapping: &Arc<Mapping>, at: usize, count: u32) -> io::Result<Words<AtomicU32>> {
    Words::new(part(mapping, at, count as usize * 4).and_then(|view| view.words32()), mapping)
}

/// Returns the `count` 64-bit words at offset `at`.
pub fn words64(mapping: &Arc<Mapping>, at: usize, count: u32) -> io::Result<Words<AtomicU64>> {
    Words::new(part(mapping, at, count as usize * 8).and_then(|view| view.words64()), mapping)
}

/// A power of two of items in the driver's private memory. Indices wrap.
#[derive(Debug)]
pub struct Table<T>(Box<[T]>);

impl<T: Copy> Table<T> {
    /// Makes a table of `items`, whose number must be a power of two.
    pub fn new(items: impl Iterator<Item = T>) -> Table<T> {
        let items: Box<[T]> = items.collect();
        assert!(items.len().is_power_of_two(), "a ring of {} places", items.len());
        Table(items)
    }

    /// Returns the number of items.
    #[inline]
    pub fn size(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns all items.
    #[inline]
    pub fn items(&self) -> &[T] {
        &self.0
    }

    /// Returns the item at this index.
    #[inline]
    pub fn get(&self, place: u32) -> T {
        // SAFETY: the length is a power of two, and so not 0. Masked with the length minus one, an index is below the
        // length.
        unsafe { *self.0.get_unchecked(place as usize & (self.0.len() - 1)) }
    }

    /// Sets the item at this index.
    #[inline]
    pub fn set(&mut self, place: u32, item: T) {
        let last = self.0.len() - 1;
        self.0[place as usize & last] = item;
    }
}

/// The buffers of one queue: a power of two of them. Buffer numbers wrap.
///
/// The driver trusts the device not to write to buffers that it has given back. The driver never takes the address or
/// the size of a buffer from the device.
#[derive(Debug)]
pub struct Buffers {
    /// Start of the first buffer's frame.
    start: NonNull<u8>,
    mask: usize,
    /// Bytes from one buffer to the next.
    stride: usize,
    /// Bytes of each buffer before its frame.
    front: usize,
    /// Most bytes of a frame.
    capacity: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the bytes stay mapped while this lives, and writing to them needs `&mut self`.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Makes `count` buffers at offset `at`. Each has `front` bytes for a header, and then room for a frame of
    /// `capacity` bytes.
    pub fn new(mapping: &Arc<Mapping>, at: usize, count: u32, front: usize, capacity: usize) -> io::Result<Buffers> {
        let stride = front + capacity;
        let view = part(mapping, at, count as usize * stride).filter(|_| count.is_power_of_two());
        let start = view.and_then(|view| view.behind(front)).and_then(|view| NonNull::new(view.as_ptr()));
        let start = start.ok_or_else(|| io::Error::other("the buffers have no place in the memory"))?;
        Ok(Buffers { start, mask: count as usize - 1, stride, front, capacity, _mapping: Arc::clone(mapping) })
    }

    /// Returns the most bytes of a frame.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns where a buffer's frame begins.
    #[inline]
    fn find(&self, id: u16) -> NonNull<u8> {
        // SAFETY: there are `mask + 1` buffers of `stride` bytes, and `start` is the frame of the first.
        unsafe { self.start.add((usize::from(id) & self.mask) * self.stride) }
    }

    /// Returns the first `len` bytes of the frame in a buffer that the driver owns, or `None` when a frame has fewer
    /// bytes.
    #[inline]
    pub fn frame(&self, id: u16, len: usize) -> Option<&[u8]> {
        if len > self.capacity {
            return None;
        }
        // SAFETY: inside the buffer, and mapped while self lives. The device has given the buffer back and does not
        // write to it.
        Some(unsafe { std::slice::from_raw_parts(self.find(id).as_ptr(), len) })
    }

    /// Returns the first `len` bytes of the frame in a buffer that the driver owns, for writing, or `None` when a frame
    /// has fewer bytes.
    #[inline]
    pub fn frame_mut(&mut self, id: u16, len: usize) -> Option<&mut [u8]> {
        if len > self.capacity {
            return None;
        }
        // SAFETY: see `frame`. `&mut self` prevents a second reference in this driver.
        Some(unsafe { std::slice::from_raw_parts_mut(self.find(id).as_ptr(), len) })
    }

    /// Returns the first `len` bytes of a buffer, from `header` bytes before the frame on. Returns `None` when the
    /// buffer has fewer.
    pub fn all(&self, id: u16, header: usize, len: usize) -> Option<&[u8]> {
        if header > self.front || len > header + self.capacity {
            return None;
        }
        // SAFETY: see `frame`. The header is before the frame, in the same buffer.
        Some(unsafe { std::slice::from_raw_parts(self.find(id).sub(header).as_ptr(), len) })
    }

    /// Prefetches the first cache line of a frame for reading.
    #[inline]
    pub fn prefetch(&self, id: u16) {
        prefetch_read(self.find(id).as_ptr());
    }

    /// Prefetches the first cache line of a frame for writing.
    #[inline]
    pub fn prefetch_mut(&self, id: u16) {
        prefetch_write(self.find(id).as_ptr());
    }
}
