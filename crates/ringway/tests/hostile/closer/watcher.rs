//! Threads that hold locks of the kernel while a page is not there. A watcher keeps descriptors from being closed for the last time: a thread in
//! `epoll_wait` that holds the mutex of its epoll instance while the page that it writes events to is not there.

use std::os::fd::{BorrowedFd, OwnedFd};
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

/// A missing page: a thread that touches it waits until the test drops this. The kernel then fills it.
struct Page {
    faults: OwnedFd,
    address: usize,
}

impl Page {
    /// `None`: the kernel has no userfaultfd for this user.
    fn new() -> Option<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // SAFETY: the descriptor is used below for one mapping of this function's own.
        let faults = unsafe { userfaultfd(flags) }.ok()?;
        // SAFETY: a new mapping, which is never unmapped.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let address = page.expect("memory") as usize;
        let mut api = Api { api: 0xaa, features: 0, ioctls: 0 };
        let mut register = Register { start: address as u64, len: PAGE as u64, mode: 1, ioctls: 0 };
        // SAFETY: both requests read and write these structures (UFFDIO_API, UFFDIO_REGISTER).
        unsafe {
            ioctl(&faults, Updater::<{ opcode::read_write::<Api>(0xaa, 0x3f) }, Api>::new(&mut api)).ok()?;
            ioctl(&faults, Updater::<{ opcode::read_write::<Register>(0xaa, 0) }, Register>::new(&mut register))
                .ok()?;
        }
        Some(Self { faults, address })
    }

    fn until_touched(&self) {
        until("a thread waits for the page", || {
            poll(&mut [PollFd::new(&self.faults, PollFlags::IN)], Some(&Timespec::default())) == Ok(1)
        });
    }
}

/// A thread of the kernel's that waits for a page. Lets go when it is dropped.
struct Waiting {
    page: Option<Page>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// `touch` gets the page's address. `None`: the kernel has no userfaultfd for this user.
    fn start(touch: impl FnOnce(usize) + Send + 'static) -> Option<Self> {
        let page = Page::new()?;
        let address = page.address;
        let thread = std::thread::spawn(move || touch(address));
        page.until_touched();
        Some(Self { page: Some(page), thread: Some(thread) })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.page = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Keeps eventfds from being closed for the last time.
pub struct Watcher(#[allow(dead_code, reason = "dropped")] Waiting);

impl Watcher {
    /// Watches eventfds, from now on without letting go. `None`: the kernel has no userfaultfd for this user.
    pub fn new(files: &[BorrowedFd<'_>]) -> Option<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC).expect("an epoll set");
        for file in files {
            epoll::add(&set, file, EventData::new_u64(0), EventFlags::IN).expect("an eventfd");
            rustix::io::write(file, &1u64.to_ne_bytes()).expect("room in the counter");
        }
        let wait = move |page| {
            // SAFETY: the page is writable, nobody else refers to it, and zeroes are a valid event.
            let events = unsafe { std::slice::from_raw_parts_mut(page as *mut epoll::Event, 1) };
            let _ = epoll::wait(&set, events, None);
        };
        Waiting::start(wait).map(Self)
    }
}

/// Keeps memory from being sealed, and thus the switch from mapping it: holds the file's inode lock.
pub struct Writer(#[allow(dead_code, reason = "dropped")] Waiting);

impl Writer {
    /// Writes to the memory, from now on without an end. `None`: the kernel has no userfaultfd for this user.
    pub fn new(memory: OwnedFd) -> Option<Self> {
        let write = move |page| {
            // SAFETY: the page is readable, and nobody writes to it.
            let bytes = unsafe { std::slice::from_raw_parts(page as *const u8, 1) };
            let _ = rustix::io::write(&memory, bytes);
        };
        Waiting::start(write).map(Self)
    }
}
