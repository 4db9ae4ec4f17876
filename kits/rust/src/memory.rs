//! Memory for as long as the instance runs, and words as bytes.

/// The bytes of these words, for example as a key of [`map`](crate::map).
#[inline]
#[must_use]
pub fn bytes<const N: usize>(words: &[u64; N]) -> &[u8] {
    // SAFETY: words have no bytes that are not set, and bytes have no alignment.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), N * 8) }
}

/// Makes a slice of `count` copies of a value, for as long as the instance runs. `None` if there is no more memory: an instance has 64 MiB.
///
/// A program takes its memory in `start`: nothing gives it back.
#[must_use]
pub fn filled<T: Copy + 'static>(count: usize, value: T) -> Option<&'static mut [T]> {
    let bytes = count.checked_mul(core::mem::size_of::<T>())?;
    let at = take(bytes, core::mem::align_of::<T>())?.cast::<T>();
    for place in 0..count {
        // SAFETY: `take` gave so many bytes, aligned, and to nobody else.
        unsafe { at.add(place).write(value) };
    }
    // SAFETY: all elements are written.
    Some(unsafe { core::slice::from_raw_parts_mut(at, count) })
}

#[cfg(target_arch = "wasm32")]
fn take(bytes: usize, align: usize) -> Option<*mut u8> {
    use core::cell::UnsafeCell;

    struct Free(UnsafeCell<(usize, usize)>);
    // SAFETY: Ringway calls an instance from one thread at a time.
    unsafe impl Sync for Free {}
    /// Begin and end of what is left of the pages that were taken.
    static FREE: Free = Free(UnsafeCell::new((0, 0)));
    const PAGE: usize = 1 << 16;

    // SAFETY: this function is the only user, and does not call itself.
    let (begin, end) = unsafe { &mut *FREE.0.get() };
    let mut at = begin.checked_add(align - 1)? & !(align - 1);
    if *end == 0 || at.checked_add(bytes)? > *end {
        let pages = bytes.checked_add(PAGE - 1)? / PAGE;
        let pages = if pages == 0 { 1 } else { pages };
        let before = core::arch::wasm32::memory_grow(0, pages);
        if before == usize::MAX {
            return None;
        }
        at = before * PAGE;
        *end = at + pages * PAGE;
    }
    *begin = at + bytes;
    Some(at as *mut u8)
}

#[cfg(not(target_arch = "wasm32"))]
fn take(bytes: usize, align: usize) -> Option<*mut u8> {
    extern crate std;
    let layout = core::alloc::Layout::from_size_align(bytes.max(1), align).ok()?;
    // SAFETY: the size is not zero.
    Some(unsafe { std::alloc::alloc(layout) }).filter(|at| !at.is_null())
}
