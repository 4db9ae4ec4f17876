//! A driver's memory: words that the device reads and writes too, and the bytes of buffers.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use ringway_memory::{Mapping, View, prefetch_read, prefetch_write};

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

    /// All words.
    #[inline]
    pub fn all(&self) -> &[T] {
        // SAFETY: as in `at`.
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

/// A power of two of items that only the driver sees; places beyond the last count from the first again.
#[derive(Debug)]
pub struct Table<T>(Box<[T]>);

impl<T: Copy> Table<T> {
    /// `items` must be a power of two.
    pub fn new(items: impl Iterator<Item = T>) -> Table<T> {
        let items: Box<[T]> = items.collect();
        assert!(items.len().is_power_of_two(), "a ring of {} places", items.len());
        Table(items)
    }

    /// Number of items.
    #[inline]
    pub fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// All of them.
    #[inline]
    pub fn items(&self) -> &[T] {
        &self.0
    }

    #[inline]
    pub fn get(&self, place: u32) -> T {
        // SAFETY: the length is a power of two and so not 0, and masked by one less a place is below it.
        unsafe { *self.0.get_unchecked(place as usize & (self.0.len() - 1)) }
    }

    #[inline]
    pub fn set(&mut self, place: u32, item: T) {
        let last = self.0.len() - 1;
        self.0[place as usize & last] = item;
    }
}

/// The buffers of one queue, a power of two; numbers beyond the last count from the first again.
///
/// The driver trusts the device not to write buffers that it has given back; where a buffer is and how long it is, it
/// never learns from the device.
#[derive(Debug)]
pub struct Buffers {
    /// The first buffer's frame.
    start: NonNull<u8>,
    mask: usize,
    /// Bytes from one buffer to the next.
    stride: usize,
    /// Bytes of each buffer in front of its frame.
    front: usize,
    /// Most bytes of a frame.
    capacity: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the bytes stay mapped as long as this is, and `&mut self` is needed to write them.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers at `at`, each with `front` bytes for something else and then room for `capacity` bytes of frame.
    pub fn new(mapping: &Arc<Mapping>, at: usize, count: u32, front: usize, capacity: usize) -> io::Result<Buffers> {
        let stride = front + capacity;
        let view = part(mapping, at, count as usize * stride).filter(|_| count.is_power_of_two());
        let start = view.and_then(|view| view.behind(front)).and_then(|view| NonNull::new(view.as_ptr()));
        let start = start.ok_or_else(|| io::Error::other("the buffers have no place in the memory"))?;
        Ok(Buffers { start, mask: count as usize - 1, stride, front, capacity, _mapping: Arc::clone(mapping) })
    }

    /// Most bytes of a frame.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where a buffer's frame begins.
    #[inline]
    fn find(&self, id: u16) -> NonNull<u8> {
        // SAFETY: there are `mask + 1` buffers of `stride` bytes, and `start` is the frame of the first.
        unsafe { self.start.add((usize::from(id) & self.mask) * self.stride) }
    }

    /// The `len` bytes of frame in a buffer that the driver has; `None` when it is shorter.
    #[inline]
    pub fn frame(&self, id: u16, len: usize) -> Option<&[u8]> {
        if len > self.capacity {
            return None;
        }
        // SAFETY: inside the buffer, mapped as long as self; the device has given the buffer back and does not write it.
        Some(unsafe { std::slice::from_raw_parts(self.find(id).as_ptr(), len) })
    }

    /// The same, to write.
    #[inline]
    pub fn frame_mut(&mut self, id: u16, len: usize) -> Option<&mut [u8]> {
        if len > self.capacity {
            return None;
        }
        // SAFETY: as in `frame`; `&mut self` keeps this driver from having it twice.
        Some(unsafe { std::slice::from_raw_parts_mut(self.find(id).as_ptr(), len) })
    }

    /// The first `len` bytes of the `header` bytes in front of the frame and of the frame; `None` when there are less.
    pub fn all(&self, id: u16, header: usize, len: usize) -> Option<&[u8]> {
        if header > self.front || len > header + self.capacity {
            return None;
        }
        // SAFETY: as in `frame`; the header is in front of the frame, in the same buffer.
        Some(unsafe { std::slice::from_raw_parts(self.find(id).sub(header).as_ptr(), len) })
    }

    /// Starts to bring the first line of a frame near, for reading.
    #[inline]
    pub fn prefetch(&self, id: u16) {
        prefetch_read(self.find(id).as_ptr());
    }

    /// The same, for writing.
    #[inline]
    pub fn prefetch_mut(&self, id: u16) {
        prefetch_write(self.find(id).as_ptr());
    }
}
