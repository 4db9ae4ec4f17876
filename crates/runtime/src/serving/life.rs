//! The end of the process, told at once: the kernel marks a robust futex when a thread ends, and wakes who waits for it, before it unmaps the
//! process's memory. That takes 16 to 47 ms for each GiB, and a pidfd is readable after it only.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{futex, gettid};

/// `struct robust_list` of linux/futex.h.
#[repr(C)]
struct Entry {
    next: *const Entry,
}

/// `struct robust_list_head`.
#[repr(C)]
struct Head {
    list: Entry,
    /// From an entry to its futex.
    futex_offset: libc::c_long,
    list_op_pending: *const Entry,
}

/// Has the kernel mark this word when the calling thread ends. The thread can have no robust mutex of the C library afterwards; Ringway has none.
pub(super) fn end_with_this_thread(word: &'static AtomicU32) {
    // The kernel reads both when the thread ends.
    let entry: &'static mut Entry = Box::leak(Box::new(Entry { next: ptr::null() }));
    let head: &'static mut Head = Box::leak(Box::new(Head {
        list: Entry { next: entry },
        futex_offset: (word.as_ptr() as isize).wrapping_sub(ptr::from_ref(entry) as isize) as libc::c_long,
        list_op_pending: ptr::null(),
    }));
    entry.next = &raw const head.list;
    // Somebody waits, always: the kernel wakes nobody else.
    word.store(gettid().as_raw_nonzero().get() as u32 | futex::WAITERS, Ordering::Release);
    // SAFETY: the list is a circle of one entry, which lives as long as the process, and the entry's futex is a word of a mapping that does.
    unsafe { libc::syscall(libc::SYS_set_robust_list, ptr::from_ref(head), size_of::<Head>()) };
}

#[cfg(test)]
mod tests {
    use ringway_testing::until;

    use super::*;

    #[test]
    fn the_end_of_the_thread_is_marked() {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let number = std::thread::spawn(move || {
            end_with_this_thread(word);
            (word.load(Ordering::Acquire), gettid().as_raw_nonzero().get() as u32)
        });
        let (alive, thread) = number.join().expect("a thread");
        assert_eq!(alive, thread | futex::WAITERS);
        // The C library lets a thread be joined a moment before it has ended.
        until("the kernel marks the end", || word.load(Ordering::Acquire) & futex::OWNER_DIED != 0);
    }
}
