//! A pointer and its length, bound to the lifetime of a mapping.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Bytes at the beginning of a frame that are copied to private memory, where policies judge them.
pub const HEAD_BYTES: usize = 128;
const LINE: usize = 64;

/// A private copy of the beginning of a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Head(pub [u8; HEAD_BYTES]);

impl Default for Head {
    fn default() -> Self {
        Self([0; HEAD_BYTES])
    }
}

/// Bytes of a [`crate::Mapping`] that another process may be writing at any time.
///
/// Contract: the bytes are mapped for `'m`. Nothing is assumed of their contents, and two reads may differ.
#[derive(Clone, Copy, Debug)]
pub struct View<'m> {
    start: NonNull<u8>,
    len: usize,
    mapping: PhantomData<&'m ()>,
}

// SAFETY: a view is a borrow of a `Mapping`, which is `Sync`. All access is atomic or a bytewise copy that tolerates
// concurrent writers.
unsafe impl Send for View<'_> {}
// SAFETY: see Send.
unsafe impl Sync for View<'_> {}

impl<'m> View<'m> {
    /// # Safety
    /// `len` bytes at `start` stay mapped, readable and writable for `'m`, and no Rust reference to them exists.
    #[inline]
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        // SAFETY: mapped memory is not at address 0.
        Self { start: unsafe { NonNull::new_unchecked(start) }, len, mapping: PhantomData }
    }

    /// A view of private bytes, which stay borrowed while the view or a part of it exists.
    #[inline]
    #[must_use]
    pub fn private(bytes: &'m mut [u8]) -> Self {
        // SAFETY: the bytes are mapped, and the only reference to them is lent for 'm.
        unsafe { Self::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the `len` bytes at `offset`, or `None` when they are not all inside. The check cannot overflow.
    #[inline]
    #[must_use]
    pub fn sub(&self, offset: usize, len: usize) -> Option<View<'m>> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: inside self by the check above.
        Some(unsafe { View::new(self.start.as_ptr().add(offset), len) })
    }

    /// Returns the bytes after the first `offset` bytes, or `None` when there are none.
    #[inline(always)]
    #[must_use]
    pub fn behind(&self, offset: usize) -> Option<View<'m>> {
        if offset >= self.len {
            return None;
        }
        // SAFETY: inside self by the check above.
        Some(unsafe { View::new(self.start.as_ptr().add(offset), self.len - offset) })
    }

    /// Returns the view as an array of pieces of `size` bytes at equal distances, as far as they are inside. They overlap if
    /// the distance is less than `size`. Returns `None` when `size` or the distance is 0.
    #[inline]
    #[must_use]
    pub fn pieces<S: Stride>(&self, size: usize, stride: S) -> Option<Pieces<'m, S>> {
        let distance = stride.bytes(size);
        if size == 0 || distance == 0 {
            return None;
        }
        let count = self.len.checked_sub(size).map_or(0, |left| left / distance + 1);
        Some(Pieces { start: self.start.as_ptr(), count, size, stride, mapping: PhantomData })
    }

    /// Returns the view as 64-bit words, or `None` unless it is aligned and its length is a multiple of 8.
    #[inline]
    #[must_use]
    pub fn words64(&self) -> Option<&'m [AtomicU64]> {
        if !(self.start.as_ptr() as usize).is_multiple_of(8) || !self.len.is_multiple_of(8) {
            return None;
        }
        // SAFETY: aligned, inside self and mapped for 'm. Atomics may be shared with other writers.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU64>(), self.len / 8) })
    }

    /// Returns the view as 32-bit words, or `None` unless it is aligned and its length is a multiple of 4.
    #[inline]
    #[must_use]
    pub fn words32(&self) -> Option<&'m [AtomicU32]> {
        if !(self.start.as_ptr() as usize).is_multiple_of(4) || !self.len.is_multiple_of(4) {
            return None;
        }
        // SAFETY: aligned, inside self and mapped for 'm. Atomics may be shared with other writers.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU32>(), self.len / 4) })
    }

    /// Returns the view as 16-bit words, or `None` unless it is aligned and its length is a multiple of 2.
    #[inline]
    #[must_use]
    pub fn words16(&self) -> Option<&'m [AtomicU16]> {
        if !(self.start.as_ptr() as usize).is_multiple_of(2) || !self.len.is_multiple_of(2) {
            return None;
        }
        // SAFETY: aligned, inside self and mapped for 'm. Atomics may be shared with other writers.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU16>(), self.len / 2) })
    }

    /// Reads the first eight bytes once, as a little-endian number. Returns `None` when the view is shorter. Works at
    /// any alignment.
    #[inline]
    #[must_use]
    pub fn first_word(&self) -> Option<u64> {
        if self.len < 8 {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        let bytes = {
            let word: u64;
            // SAFETY: eight bytes can be read there by the check above. The compiler cannot repeat the read.
            unsafe {
                std::arch::asm!(
                    "mov {word}, qword ptr [{from}]",
                    word = out(reg) word,
                    from = in(reg) self.start.as_ptr(),
                    options(nostack, preserves_flags, readonly)
                );
            }
            word.to_ne_bytes()
        };
        #[cfg(not(target_arch = "x86_64"))]
        let bytes = {
            let mut bytes = [0; 8];
            self.read_exact_part(&mut bytes);
            bytes
        };
        Some(u64::from_le_bytes(bytes))
    }

    /// Returns [`View::first_word`] and the bytes after the first `HEADER` bytes (8 or more), or `None` when there are
    /// none.
    #[inline(always)]
    #[must_use]
    pub fn split_header<const HEADER: usize>(&self) -> Option<(u64, View<'m>)> {
        const { assert!(HEADER >= 8, "the first word is in the header") };
        let behind = self.behind(HEADER)?;
        Some((self.first_word()?, behind))
    }

    /// Copies the first `len` bytes, at most [`HEAD_BYTES`], into `head`. The contents of `head` beyond these are
    /// unspecified. Returns how many of the frame's bytes are in `head`.
    #[inline(always)]
    pub fn read_head(&self, len: usize, head: &mut Head) -> usize {
        let want = len.min(HEAD_BYTES).min(self.len);
        let to = head.0.as_mut_ptr();
        // SAFETY: `want` bytes are inside the view and inside `head`; where the view has a whole line, that line is
        // inside both, too. Lengths between two sizes are copied as two overlapping pieces of a fixed size. A byte that
        // is read twice has the value of the second read, which overwrites the first.
        unsafe {
            if want > LINE {
                copy_line(self.start.as_ptr(), to);
                copy_line(self.start.as_ptr().add(want - LINE), to.add(want - LINE));
            } else if self.len >= LINE {
                copy_line(self.start.as_ptr(), to);
            } else if want >= LINE / 2 {
                copy_half(self.start.as_ptr(), to);
                copy_half(self.start.as_ptr().add(want - LINE / 2), to.add(want - LINE / 2));
            } else {
                self.read_exact_part(&mut head.0[..want]);
            }
        }
        want
    }

    #[inline]
    fn read_exact_part(&self, target: &mut [u8]) {
        debug_assert!(target.len() <= self.len);
        // SAFETY: the caller passes a `target` that is at most as long as the view. Bytes that change during the copy
        // have the old or the new value. Both are acceptable.
        unsafe {
            ptr::copy_nonoverlapping(self.start.as_ptr().cast_const(), target.as_mut_ptr(), target.len());
            settle(target.as_mut_ptr());
        }
    }

    /// Copies the first `target.len()` bytes to `target`. Returns false, without effect, when the view is shorter.
    #[inline]
    #[must_use]
    pub fn read(&self, target: &mut [u8]) -> bool {
        if target.len() > self.len {
            return false;
        }
        self.read_exact_part(target);
        true
    }

    /// Copies `source` to the beginning of the view. Returns false, without effect, when the view is shorter.
    #[inline]
    #[must_use]
    pub fn write(&self, source: &[u8]) -> bool {
        let len = source.len();
        if len > self.len {
            return false;
        }
        let (from, to) = (source.as_ptr(), self.start.as_ptr());
        // SAFETY: `len` bytes are inside both. Private memory never overlaps a mapping that is only reached through
        // views. Short sources are written as two overlapping pieces of a fixed size, which is cheaper than a call.
        unsafe {
            match len {
                65..=128 => copy_ends::<64>(from, to, len),
                33..=64 => copy_ends::<32>(from, to, len),
                17..=32 => copy_ends::<16>(from, to, len),
                _ => ptr::copy_nonoverlapping(from, to, len),
            }
        }
        true
    }

    /// Copies `source` to `offset`. Has no effect when it would not all be inside.
    #[inline(always)]
    pub fn put<const N: usize>(&self, offset: usize, source: &[u8; N]) {
        if let Some(to) = self.sub(offset, N) {
            // SAFETY: N bytes are inside both. Private memory never overlaps a mapping.
            unsafe { ptr::copy_nonoverlapping(source.as_ptr(), to.start.as_ptr(), N) };
        }
    }

    /// Copies the first `len` bytes of `head`, at most [`HEAD_BYTES`], to the beginning of the view. Returns false,
    /// without effect, when the view is shorter.
    #[inline]
    #[must_use]
    pub fn write_head(&self, head: &Head, len: usize) -> bool {
        head.0.get(..len).is_some_and(|bytes| self.write(bytes))
    }

    /// Takes as many bytes of `head` as the view has, and copies the first 16 and the last 16 of them. Has no effect
    /// when the view has fewer than 16 bytes, or more than [`HEAD_BYTES`].
    #[inline(always)]
    pub fn write_ends(&self, head: &Head) {
        const END: usize = 16;
        if (END..=HEAD_BYTES).contains(&self.len) {
            let (from, to, last) = (head.0.as_ptr(), self.start.as_ptr(), self.len - END);
            // SAFETY: 16 bytes at the first and at the last offset are inside both, by the check above. Private memory
            // never overlaps a mapping.
            unsafe {
                ptr::copy_nonoverlapping(from, to, END);
                ptr::copy_nonoverlapping(from.add(last), to.add(last), END);
            }
        }
    }

    /// Copies all of `source` to the beginning of the view. Returns false, without effect, when the view is shorter.
    #[inline]
    #[must_use]
    pub fn copy_from(&self, source: View<'_>) -> bool {
        if source.len > self.len {
            return false;
        }
        // SAFETY: both sides are inside their views. They may overlap when both belong to one client's memory, hence
        // `copy`.
        unsafe { ptr::copy(source.start.as_ptr().cast_const(), self.start.as_ptr(), source.len) };
        true
    }

    /// Prefetches the first cache line for reading.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_read(self.start.as_ptr());
    }

    /// Prefetches the first cache line for writing.
    #[inline]
    pub fn prefetch_mut(&self) {
        prefetch_write(self.start.as_ptr());
    }

    /// Returns the base address, for system calls.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

/// The distance between the beginnings of two pieces.
pub trait Stride: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// Returns the distance in bytes, for pieces of this size.
    fn bytes(self, size: usize) -> usize;
}

/// Each piece begins at the end of the one before. Takes no register in loops over pieces.
#[derive(Clone, Copy, Debug)]
pub struct Adjacent;

impl Stride for Adjacent {
    #[inline(always)]
    fn bytes(self, size: usize) -> usize {
        size
    }
}

/// Pieces begin at every multiple of so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Every(pub usize);

impl Stride for Every {
    #[inline(always)]
    fn bytes(self, _size: usize) -> usize {
        self.0
    }
}

/// Pieces of equal size at equal distances in a view: access to a piece only has to check its index.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'m, S = Adjacent> {
    start: *mut u8,
    count: usize,
    size: usize,
    stride: S,
    mapping: PhantomData<&'m ()>,
}

// SAFETY: see `View`; each piece is a view.
unsafe impl<S: Stride> Send for Pieces<'_, S> {}
// SAFETY: see `View`; each piece is a view.
unsafe impl<S: Stride> Sync for Pieces<'_, S> {}

impl<'m, S: Stride> Pieces<'m, S> {
    /// Returns piece `index`, or `None` when there is no such piece.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<View<'m>> {
        if index >= self.count {
            return None;
        }
        // SAFETY: `count` pieces of `size` bytes, at multiples of the distance, are inside the view that this was made from.
        Some(unsafe { View::new(self.start.add(index * self.stride.bytes(self.size)), self.size) })
    }

    /// Returns the size of a piece in bytes.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the pieces with any lifetime.
    ///
    /// # Safety
    /// The caller does not use them, or a view of one, after the memory is unmapped.
    pub(crate) unsafe fn outlive(self) -> Pieces<'static, S> {
        Pieces { start: self.start, count: self.count, size: self.size, stride: self.stride, mapping: PhantomData }
    }

    /// Returns the address where piece `index` is, or would be. For prefetching.
    #[inline]
    #[must_use]
    pub fn address(&self, index: usize) -> *mut u8 {
        self.start.wrapping_add(index.wrapping_mul(self.stride.bytes(self.size)))
    }
}

/// Ends a copy out of memory that others write. As far as the compiler knows, the empty instruction may change
/// `target`. Without it, the compiler could read the source again later instead of the copy (and does, as
/// ThreadSanitizer shows).
///
/// # Safety
/// `target` is where the bytes were copied to.
#[inline(always)]
unsafe fn settle(target: *mut u8) {
    // SAFETY: the assembly is empty.
    unsafe { std::arch::asm!("/* {} */", in(reg) target, options(nostack, preserves_flags)) };
}

/// Copies one cache line out of memory that others write, reading every byte once: the compiler cannot look into the
/// assembly, so it cannot read the source again later.
///
/// # Safety
/// A line can be read at `from` and written at `to`, and the two do not overlap.
#[inline]
unsafe fn copy_line(from: *const u8, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads and writes one line, as the caller allows, at any alignment.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads and writes one line, as the caller allows.
    unsafe {
        ptr::copy_nonoverlapping(from, to, LINE);
        settle(to);
    }
}

/// Copies half a cache line out of memory that others write, reading every byte once: see [`copy_line`].
///
/// # Safety
/// Half a line can be read at `from` and written at `to`, and the two do not overlap.
#[inline]
unsafe fn copy_half(from: *const u8, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads and writes half a line, as the caller allows, at any alignment.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads and writes half a line, as the caller allows.
    unsafe {
        ptr::copy_nonoverlapping(from, to, LINE / 2);
        settle(to);
    }
}

/// Copies `len` bytes (N to 2 N of them) as the first N and the last N bytes.
///
/// # Safety
/// `len` bytes can be read at `from` and written at `to`, and the two do not overlap.
#[inline]
pub(crate) unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both pieces are inside the `len` bytes.
    unsafe {
        ptr::copy_nonoverlapping(from, to, N);
        ptr::copy_nonoverlapping(from.add(len - N), to.add(len - N), N);
    }
}

/// Prefetches the cache line at `address` for reading. Any address is allowed.
#[inline]
pub fn prefetch_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and cannot fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch changes nothing and cannot fault.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Prefetches the cache line at `address` for writing. Any address is allowed.
#[inline]
pub fn prefetch_write(address: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and cannot fault. Processors without it treat it as a no-operation.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch changes nothing and cannot fault.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
