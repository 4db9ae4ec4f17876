//! A watcher that keeps descriptors from being closed for the last time: a thread in `epoll_wait` that holds the mutex of its epoll
//! instance while the page that it writes events to is not there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use ringway_testing::until;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags, mmap_anonymous, userfaultfd};

const PAGE: usize = 4096;

/// `uffdio_api` of uapi/linux/userfaultfd.h.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// Lets go when it is dropped.
pub struct Watcher {
    faults: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Watches eventfds, from now on without letting go. `None`: the kernel has no userfaultfd for this user.
    pub fn new(files: &[BorrowedFd<'_>]) -> Option<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // SAFETY: the descriptor is used below for one mapping of this function's own.
        let faults = unsafe { userfaultfd(flags) }.ok()?;
        // SAFETY: a new mapping, which is never unmapped.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let page = page.expect("memory") as usize;
        let mut api = Api { api: 0xaa, features: 0, ioctls: 0 };
        let mut register = Register { start: page as u64, len: PAGE as u64, mode: 1, ioctls: 0 };
        // SAFETY: both requests read and write these structures (UFFDIO_API, UFFDIO_REGISTER).
        unsafe {
            ioctl(&faults, Updater::<{ opcode::read_write::<Api>(0xaa, 0x3f) }, Api>::new(&mut api)).ok()?;
            ioctl(&faults, Updater::<{ opcode::read_write::<Register>(0xaa, 0) }, Register>::new(&mut register))
                .ok()?;
        }
        let set = epoll::create(CreateFlags::CLOEXEC).expect("an epoll set");
        for file in files {
            epoll::add(&set, file, EventData::new_u64(0), EventFlags::IN).expect("an eventfd");
            rustix::io::write(file, &1u64.to_ne_bytes()).expect("room in the counter");
        }
        let thread = std::thread::spawn(move || {
            // SAFETY: the page is writable, nobody else refers to it, and zeroes are a valid event.
            let events = unsafe { std::slice::from_raw_parts_mut(page as *mut epoll::Event, 1) };
            let _ = epoll::wait(&set, events, None);
        });
        let watcher = Self { faults: Some(faults), thread: Some(thread) };
        until("the thread waits for its page", || {
            let faults = watcher.faults.as_ref().map(|faults| PollFd::from_borrowed_fd(faults.as_fd(), PollFlags::IN));
            poll(faults.into_iter().collect::<Vec<_>>().as_mut_slice(), Some(&Timespec::default())) == Ok(1)
        });
        Some(watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The kernel then fills the page itself.
        self.faults = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
