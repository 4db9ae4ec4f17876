//! Counts the memory that each thread has.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Returns the bytes that this thread has allocated and not freed.
pub fn bytes() -> isize {
    BYTES.get()
}

fn add(bytes: usize) {
    BYTES.set(BYTES.get() + bytes as isize);
}

fn remove(bytes: usize) {
    BYTES.set(BYTES.get() - bytes as isize);
}

// SAFETY: passes all calls to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        remove(layout.size());
        add(bytes);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
