//! Epoll sets with netmap descriptors.
//!
//! The kernel's set has, for each netmap descriptor, its connection and its registration's eventfd, both edge-triggered, with the address of
//! the entry here as their data. No program has such data, so that these events are told from the program's own. A wait synchronises the
//! rings of all entries, reports those that are ready, and otherwise sleeps in the kernel's set.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_short};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, POLLERR, POLLIN, POLLRDNORM,
    epoll_event,
};

use super::mask::Mask;
use super::time::Limit;
use crate::file::{self, State};
use crate::lock::Lock;
use crate::sync;
use crate::table::{self, Entry};

/// Most epoll sets with netmap descriptors in a process, and most such descriptors in a set.
const SETS: usize = 64;
const WATCHES: usize = 64;

/// A netmap descriptor in a set.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// The descriptor, or -1.
    fd: c_int,
    events: u32,
    data: u64,
    /// The kernel's set has the eventfd, with this number, or -1.
    call: c_int,
    /// Edge-triggered: the tails when it was reported last, unless it is to be reported anew.
    reported: Option<u64>,
    /// `EPOLLONESHOT`, and reported.
    is_spent: bool,
}

const UNUSED: Watch = Watch { fd: -1, events: 0, data: 0, call: -1, reported: None, is_spent: false };

struct Set {
    /// Descriptors of the set.
    users: AtomicU32,
    lock: Lock,
    /// A signal handler has closed a descriptor while its own thread held the lock.
    is_stale: AtomicBool,
    watches: UnsafeCell<[Watch; WATCHES]>,
}

// SAFETY: the watches are used by the holder of the lock only.
unsafe impl Sync for Set {}

static SET: [Set; SETS] = [const {
    Set {
        users: AtomicU32::new(0),
        lock: Lock::new(),
        is_stale: AtomicBool::new(false),
        watches: UnsafeCell::new([UNUSED; WATCHES]),
    }
}; SETS];

/// `None`: this is a signal handler, and its own thread works with the set.
fn with<T>(set: u16, work: impl FnOnce(&mut [Watch; WATCHES]) -> T) -> Option<T> {
    let set = &SET[usize::from(set)];
    let _held = set.lock.take()?;
    // SAFETY: the lock is held.
    let watches = unsafe { &mut *set.watches.get() };
    let result = work(watches);
    if set.is_stale.swap(false, Ordering::Relaxed) {
        let is_closed = |watch: &&mut Watch| !matches!(table::entry(watch.fd), Entry::File(_));
        watches.iter_mut().filter(is_closed).for_each(|watch| *watch = UNUSED);
    }
    Some(result)
}

/// Returns the data of a watch's events in the kernel's set.
fn token(watch: &Watch) -> u64 {
    std::ptr::from_ref(watch).addr() as u64
}

fn is_token(data: u64) -> bool {
    let sets = SET.as_ptr_range();
    (sets.start.addr() as u64..sets.end.addr() as u64).contains(&data)
}

fn control(set: c_int, operation: c_int, fd: c_int, token: u64) -> Result<(), c_int> {
    let mut event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: token };
    // SAFETY: a system call with an event of our own.
    let done = unsafe { libc::syscall(libc::SYS_epoll_ctl, set, operation, fd, &raw mut event) };
    if done < 0 { Err(crate::errno::get()) } else { Ok(()) }
}

/// `epoll_ctl` for a netmap descriptor.
///
/// # Errors
/// As `epoll_ctl`; ENOSPC: too many sets or descriptors.
pub(crate) fn change(set_fd: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) -> Result<(), c_int> {
    let event = match operation {
        EPOLL_CTL_DEL => epoll_event { events: 0, u64: 0 },
        EPOLL_CTL_ADD | EPOLL_CTL_MOD => event.ok_or(libc::EFAULT)?,
        _ => return Err(libc::EINVAL),
    };
    let set = match table::entry(set_fd) {
        Entry::Set(set) => set,
        Entry::Other if operation == EPOLL_CTL_ADD => make(set_fd)?,
        Entry::Other => return Err(libc::ENOENT),
        _ => return Err(libc::EINVAL),
    };
    with(set, |watches| {
        let known = watches.iter_mut().find(|watch| watch.fd == fd);
        match (operation, known) {
            (EPOLL_CTL_ADD, Some(_)) => Err(libc::EEXIST),
            (EPOLL_CTL_ADD, None) => {
                let free = watches.iter_mut().find(|watch| watch.fd < 0).ok_or(libc::ENOSPC)?;
                control(set_fd, EPOLL_CTL_ADD, fd, token(free))?;
                *free = Watch { fd, events: event.events, data: event.u64, ..UNUSED };
                Ok(())
            }
            (EPOLL_CTL_MOD, Some(watch)) => {
                *watch = Watch { events: event.events, data: event.u64, reported: None, is_spent: false, ..*watch };
                Ok(())
            }
            (EPOLL_CTL_DEL, Some(watch)) => {
                let _ = control(set_fd, EPOLL_CTL_DEL, fd, 0);
                if watch.call >= 0 {
                    let _ = control(set_fd, EPOLL_CTL_DEL, watch.call, 0);
                }
                *watch = UNUSED;
                Ok(())
            }
            _ => Err(libc::ENOENT),
        }
    })
    .unwrap_or(Err(libc::EBUSY))
}

/// Makes an epoll descriptor known.
fn make(set_fd: c_int) -> Result<u16, c_int> {
    let is_free = |set: &Set| set.users.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let set = SET.iter().position(is_free).ok_or(libc::ENOSPC)? as u16;
    with(set, |watches| *watches = [UNUSED; WATCHES]);
    if table::set(set_fd, Entry::Set(set)) { Ok(set) } else { Err(libc::ENOSPC) }
}

/// Notes that a descriptor of the set was duplicated.
pub(crate) fn duplicate(set: u16, new: c_int) {
    SET[usize::from(set)].users.fetch_add(1, Ordering::Relaxed);
    table::set(new, Entry::Set(set));
}

/// Notes that a descriptor of the set is closed.
pub(crate) fn forget_set(set: u16, fd: c_int) {
    table::set(fd, Entry::Other);
    SET[usize::from(set)].users.fetch_sub(1, Ordering::Release);
}

/// Takes a netmap descriptor that is closed out of all sets. The kernel takes its descriptors out by itself.
pub(crate) fn forget_watched(fd: c_int) {
    for (number, set) in SET.iter().enumerate().filter(|(_, set)| set.users.load(Ordering::Relaxed) > 0) {
        let forgotten = with(number as u16, |watches| {
            watches.iter_mut().filter(|watch| watch.fd == fd).for_each(|watch| *watch = UNUSED);
        });
        if forgotten.is_none() {
            set.is_stale.store(true, Ordering::Relaxed);
        }
    }
}

/// Frees all locks in the child of a fork.
pub(crate) fn reset_locks() {
    SET.iter().filter(|set| set.users.load(Ordering::Relaxed) > 0).for_each(|set| set.lock.reset());
}

impl Watch {
    /// Synchronises the descriptor, and returns the events to report; 0 if there are none.
    fn look(&mut self) -> u32 {
        if self.fd < 0 || self.is_spent {
            return 0;
        }
        let Some(file) = file::of(self.fd) else { return 0 };
        // The numbers of the events are those of poll.
        let ready = sync::poll_once(&file, self.fd, self.events as c_short);
        if ready.events == 0 {
            self.reported = self.reported.filter(|_| self.events & EPOLLET as u32 == 0);
            return 0;
        }
        if self.events & EPOLLET as u32 != 0 && self.reported == Some(ready.tails) {
            return 0;
        }
        ready.events as u16 as u32
    }

    fn report(&mut self) {
        if let Some(file) = file::of(self.fd) {
            self.reported = Some(sync::poll_once(&file, self.fd, self.events as c_short).tails);
        }
        self.is_spent = self.events & EPOLLONESHOT as u32 != 0;
    }
}

/// Returns `POLLIN` if the set has something to report and that is asked for.
pub(crate) fn is_ready(set: u16, events: c_short) -> c_short {
    let ready = with(set, |watches| watches.iter_mut().any(|watch| watch.look() != 0));
    if ready == Some(true) { events & (POLLIN | POLLRDNORM) } else { 0 }
}

/// Asks the switch for calls for all descriptors of the set.
pub(crate) fn ask(set: u16) {
    each_file(set, sync::ask);
}

/// Withdraws the requests for calls.
pub(crate) fn withdraw(set: u16) {
    each_file(set, sync::withdraw);
}

fn each_file(set: u16, act: impl Fn(&file::File, c_short)) {
    with(set, |watches| {
        for watch in watches.iter().filter(|watch| watch.fd >= 0 && !watch.is_spent) {
            if let Some(file) = file::of(watch.fd) {
                act(&file, watch.events as c_short);
            }
        }
    });
}

/// Puts the eventfds of descriptors that were registered meanwhile into the kernel's set.
fn add_calls(set: u16, set_fd: c_int) {
    with(set, |watches| {
        for watch in watches.iter_mut().filter(|watch| watch.fd >= 0) {
            let Some(file) = file::of(watch.fd) else { continue };
            let call = file.call.raw();
            if call != watch.call
                && file.state() == State::Registered
                && control(set_fd, EPOLL_CTL_ADD, call, token(watch)).is_ok()
            {
                watch.call = call;
            }
        }
    });
}

/// Writes what is ready to `events`, and returns its number.
fn collect(set: u16, events: &mut [epoll_event]) -> usize {
    let mut count = 0;
    with(set, |watches| {
        for watch in watches.iter_mut() {
            if count == events.len() {
                break;
            }
            let ready = watch.look();
            if ready != 0 {
                watch.report();
                events[count] = epoll_event { events: ready, u64: watch.data };
                count += 1;
            }
        }
    });
    count
}

/// Waits in the kernel's set, and returns the number of the program's own events, and whether there were others.
fn sleep(
    set: u16,
    set_fd: c_int,
    events: &mut [epoll_event],
    limit: Limit,
    mask: Mask,
) -> Result<(usize, bool), c_int> {
    let left = limit.left();
    let time = left.as_ref().map_or(null(), std::ptr::from_ref);
    let most = events.len() as c_int;
    // SAFETY: `most` events; a time or null; the caller's mask or null with the kernel's size of a mask.
    let mut found =
        unsafe { libc::syscall(libc::SYS_epoll_pwait2, set_fd, events.as_mut_ptr(), most, time, mask.0, 8usize) };
    if found < 0 && crate::errno::get() == libc::ENOSYS {
        let milliseconds = left.map_or(-1, |left| {
            let whole = left.tv_sec.saturating_mul(1000).saturating_add((left.tv_nsec + 999_999) / 1_000_000);
            c_int::try_from(whole).unwrap_or(c_int::MAX)
        });
        // SAFETY: as above.
        found = unsafe {
            libc::syscall(libc::SYS_epoll_pwait, set_fd, events.as_mut_ptr(), most, milliseconds, mask.0, 8usize)
        };
    }
    let found = usize::try_from(found).map_err(|_| crate::errno::get())?;
    let (mut kept, mut ours) = (0, false);
    for at in 0..found {
        let event = events[at];
        let data = event.u64;
        if is_token(data) {
            ours = true;
            look_for_end(set, data);
        } else {
            events[kept] = event;
            kept += 1;
        }
    }
    Ok((kept, ours))
}

/// Looks whether the daemon has ended the registration of a watch.
fn look_for_end(set: u16, data: u64) {
    let fd = with(set, |watches| watches.iter().find(|watch| token(watch) == data).map(|watch| watch.fd));
    if let Some(fd) = fd.flatten()
        && let Some(file) = file::of(fd)
    {
        file.look_for_end(fd);
    }
}

/// Waits for the descriptors of a set that has netmap descriptors.
///
/// # Errors
/// As `epoll_pwait2`.
pub(crate) fn wait(set_fd: c_int, events: &mut [epoll_event], mut limit: Limit, mask: Mask) -> Result<c_int, c_int> {
    let Entry::Set(set) = table::entry(set_fd) else { return Err(libc::EBADF) };
    if events.is_empty() {
        return Err(libc::EINVAL);
    }
    loop {
        let mut count = collect(set, events);
        if count == 0 && limit != Limit::Now {
            add_calls(set, set_fd);
            ask(set);
            // A frame may have come before the switch could see the request.
            count = collect(set, events);
            if count == 0 {
                limit.begin();
                let slept = sleep(set, set_fd, events, limit, mask);
                withdraw(set);
                let (kept, _) = slept?;
                count = kept + collect(set, &mut events[kept..]);
                if count > 0 || limit.is_over() {
                    return Ok(count as c_int);
                }
                continue;
            }
            withdraw(set);
        }
        if count < events.len() {
            let (kept, ours) = sleep(set, set_fd, &mut events[count..], Limit::Now, mask)?;
            count += kept;
            if ours && count == 0 {
                count = collect(set, events);
            }
        }
        return Ok(count as c_int);
    }
}

/// The events of epoll and of poll have the same numbers.
const _: () = assert!(EPOLLIN == POLLIN as c_int && libc::EPOLLERR == POLLERR as c_int);
