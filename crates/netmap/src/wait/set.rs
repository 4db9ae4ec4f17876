//! Epoll sets that have netmap descriptors: what is known about them.
//!
//! The kernel's set has the program's other descriptors. The netmap descriptors, and the sets of netmap descriptors within the set, are
//! watches here: a thread that waits looks after them itself, and sleeps for their calls and for the kernel's set at the same time.
//!
//! Threads sleep while others change a set. A thread that has looked after the set sleeps for its `changed` as well. A thread that went
//! to sleep in libc's `epoll_wait` before the set had netmap descriptors wakes up because `changed` is in the kernel's set at first, with
//! an address of this library as its data, which no program has: the library's `epoll_wait` takes such events out.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_short};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, POLLERR, POLLIN, POLLRDNORM,
    epoll_event,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::file;
use crate::lock::Lock;
use crate::private::Private;
use crate::sync::{self, Ready};
use crate::table::{self, Entry};
use crate::waiters::Waiters;

/// Most epoll sets with netmap descriptors in a process, and most such descriptors in a set.
const SETS: usize = 64;
const WATCHES: usize = 64;
/// Looks after which `changed` leaves the kernel's set. Until then it wakes the threads that sleep in libc's `epoll_wait`: the kernel wakes
/// one at a time. A thread that sleeps on only leaves the netmap descriptors to the others.
const LOOKS: u32 = 16;

/// A netmap descriptor in a set, or a set of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// The descriptor, or -1.
    pub(super) fd: c_int,
    pub(super) events: u32,
    data: u64,
    /// Edge-triggered: the moves of the tails at the last report. `None`: the next look reports the descriptor again.
    reported: Option<u64>,
    /// A look found a ring with bad positions and reset it, and no wait has reported it yet.
    is_bad: bool,
    /// `EPOLLONESHOT`, and reported.
    pub(super) is_spent: bool,
}

const UNUSED: Watch = Watch { fd: -1, events: 0, data: 0, reported: None, is_bad: false, is_spent: false };

struct Contents {
    watches: [Watch; WATCHES],
    /// The place where the next collection begins. The last place is that of the kernel's set.
    next: usize,
    /// How often `changed` is still looked at in the kernel's set.
    looks: u32,
}

const EMPTY: Contents = Contents { watches: [UNUSED; WATCHES], next: 0, looks: 0 };

struct Set {
    /// Descriptors of the set.
    users: AtomicU32,
    /// How many sets were in this place before.
    generation: AtomicU32,
    lock: Lock,
    /// A signal handler has closed a descriptor while its own thread held the lock.
    is_stale: AtomicBool,
    /// An eventfd: readable since the set is known, and written when a watch changes.
    changed: Private,
    /// Threads that sleep for `changed`.
    waiters: Waiters,
    sleepers: AtomicU32,
    contents: UnsafeCell<Contents>,
}

// SAFETY: the contents are used by the holder of the lock only.
unsafe impl Sync for Set {}

static SET: [Set; SETS] = [const {
    Set {
        users: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        lock: Lock::new(),
        is_stale: AtomicBool::new(false),
        changed: Private::none(),
        waiters: Waiters::none(),
        sleepers: AtomicU32::new(0),
        contents: UnsafeCell::new(EMPTY),
    }
}; SETS];
/// Held while a set becomes known.
static MAKE: Lock = Lock::new();

/// Returns what no other set of the same place has, before or after this one.
pub(super) fn generation(set: u16) -> u32 {
    SET[usize::from(set)].generation.load(Ordering::SeqCst)
}

/// `None`: this is a signal handler, and its own thread works with the set.
fn with<T>(set: u16, work: impl FnOnce(&mut Contents) -> T) -> Option<T> {
    let set = &SET[usize::from(set)];
    let _held = set.lock.take()?;
    // SAFETY: the lock is held.
    let contents = unsafe { &mut *set.contents.get() };
    let result = work(contents);
    if set.is_stale.swap(false, Ordering::Relaxed) {
        let is_closed = |watch: &&mut Watch| !matches!(table::entry(watch.fd), Entry::File(_) | Entry::Set(_));
        contents.watches.iter_mut().filter(is_closed).for_each(|watch| *watch = UNUSED);
    }
    Some(result)
}

/// Returns the data of the events of `changed` in the kernel's set.
fn token(set: u16) -> u64 {
    std::ptr::from_ref(&SET[usize::from(set)]).addr() as u64
}

fn is_token(data: u64) -> bool {
    let sets = SET.as_ptr_range();
    (sets.start.addr() as u64..sets.end.addr() as u64).contains(&data)
}

/// Takes the library's own events out. Returns the number of the program's.
pub(super) fn without_tokens(events: &mut [epoll_event]) -> usize {
    let mut kept = 0;
    for at in 0..events.len() {
        let event = events[at];
        if !is_token(event.u64) {
            events[kept] = event;
            kept += 1;
        }
    }
    kept
}

fn control(set_fd: c_int, operation: c_int, fd: c_int, mut event: epoll_event) -> Result<(), c_int> {
    // SAFETY: a system call with an event of our own.
    let done = unsafe { libc::syscall(libc::SYS_epoll_ctl, set_fd, operation, fd, &raw mut event) };
    if done < 0 { Err(crate::errno::get()) } else { Ok(()) }
}

/// `epoll_ctl` for a netmap descriptor, or for a set that has netmap descriptors.
///
/// # Errors
/// As `epoll_ctl`; ENOSPC: too many sets or descriptors.
pub(crate) fn change(set_fd: c_int, operation: c_int, fd: c_int, event: epoll_event) -> Result<(), c_int> {
    if !matches!(operation, EPOLL_CTL_ADD | EPOLL_CTL_MOD | EPOLL_CTL_DEL) {
        return Err(libc::EINVAL);
    }
    if let Entry::Set(inner) = table::entry(fd) {
        // The kernel knows the other descriptors of a set within a set, and refuses circles.
        with(inner, |contents| forget_token(inner, fd, contents));
        control(set_fd, operation, fd, event)?;
        return match operation {
            // The kernel had it. It may have become known here after it was added there.
            EPOLL_CTL_DEL => note(set_fd, operation, fd, event).or(Ok(())),
            EPOLL_CTL_MOD => note(set_fd, operation, fd, event).or_else(|_| note(set_fd, EPOLL_CTL_ADD, fd, event)),
            _ => note(set_fd, operation, fd, event).inspect_err(|_| {
                let _ = control(set_fd, EPOLL_CTL_DEL, fd, event);
            }),
        };
    }
    note(set_fd, operation, fd, event)
}

/// Notes a change of a set's watches.
fn note(set_fd: c_int, operation: c_int, fd: c_int, event: epoll_event) -> Result<(), c_int> {
    let set = match table::entry(set_fd) {
        Entry::Set(set) => set,
        Entry::Other if operation == EPOLL_CTL_ADD => make(set_fd)?,
        Entry::Other => return Err(libc::ENOENT),
        _ => return Err(libc::EINVAL),
    };
    with(set, |contents| {
        let known = contents.watches.iter_mut().find(|watch| watch.fd == fd);
        let fresh = Watch { fd, events: event.events, data: event.u64, ..UNUSED };
        match (operation, known) {
            (EPOLL_CTL_ADD, Some(_)) => Err(libc::EEXIST),
            (EPOLL_CTL_ADD, None) => {
                *contents.watches.iter_mut().find(|watch| watch.fd < 0).ok_or(libc::ENOSPC)? = fresh;
                Ok(())
            }
            (EPOLL_CTL_MOD, Some(watch)) => {
                *watch = fresh;
                Ok(())
            }
            (EPOLL_CTL_DEL, Some(watch)) => {
                *watch = UNUSED;
                Ok(())
            }
            _ => Err(libc::ENOENT),
        }
    })
    .unwrap_or(Err(libc::EBUSY))?;
    let set = &SET[usize::from(set)];
    // A thread counts itself before it looks at the watches for the last time.
    if set.sleepers.load(Ordering::SeqCst) > 0
        && let Some(changed) = set.changed.get()
    {
        let _ = rustix::io::write(changed, &1u64.to_ne_bytes());
    }
    Ok(())
}

/// Makes an epoll descriptor known, unless another thread has.
fn make(set_fd: c_int) -> Result<u16, c_int> {
    let _held = MAKE.take().ok_or(libc::EBUSY)?;
    if let Entry::Set(set) = table::entry(set_fd) {
        return Ok(set);
    }
    let is_free = |set: &Set| set.users.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let index = SET.iter().position(is_free).ok_or(libc::ENOSPC)? as u16;
    let set = &SET[usize::from(index)];
    with(index, |contents| *contents = Contents { looks: LOOKS, ..EMPTY });
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let made = eventfd(1, flags).map_err(rustix::io::Errno::raw_os_error).and_then(|changed| {
        set.changed.put(changed);
        let event = |events| epoll_event { events, u64: token(index) };
        control(set_fd, EPOLL_CTL_ADD, set.changed.raw(), event(0))?;
        if !table::set(set_fd, Entry::Set(index)) {
            return Err(libc::ENOSPC);
        }
        // Only now: a thread that this wakes up looks whether the set is known.
        control(set_fd, EPOLL_CTL_MOD, set.changed.raw(), event(EPOLLIN as u32)).map(|()| index)
    });
    if made.is_err() {
        table::set(set_fd, Entry::Other);
        end(set);
    }
    made
}

fn end(set: &Set) {
    set.waiters.close();
    set.changed.close();
    // Its sleepers find that it has ended.
    set.generation.fetch_add(1, Ordering::SeqCst);
    set.sleepers.store(0, Ordering::Relaxed);
    set.users.store(0, Ordering::Release);
}

/// Notes that a descriptor of the set was duplicated.
pub(crate) fn duplicate(set: u16, new: c_int) {
    SET[usize::from(set)].users.fetch_add(1, Ordering::Relaxed);
    table::set(new, Entry::Set(set));
}

/// Notes that a descriptor of the set is closed.
pub(crate) fn forget_set(set: u16, fd: c_int) {
    table::set(fd, Entry::Other);
    forget_watched(fd);
    let set = &SET[usize::from(set)];
    // The last descriptor leaves one user, so that no other set takes the place before it is empty.
    let fewer = |users: u32| (users > 1).then_some(users - 1);
    if set.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_err() {
        end(set);
    }
}

/// Takes a descriptor that is closed out of all sets.
pub(crate) fn forget_watched(fd: c_int) {
    for (number, set) in SET.iter().enumerate().filter(|(_, set)| set.users.load(Ordering::Relaxed) > 0) {
        let forgotten = with(number as u16, |contents| {
            contents.watches.iter_mut().filter(|watch| watch.fd == fd).for_each(|watch| *watch = UNUSED);
        });
        if forgotten.is_none() {
            set.is_stale.store(true, Ordering::Relaxed);
        }
    }
}

/// Frees all locks in the child of a fork, where the other threads do not exist, and closes what it must not share.
pub(crate) fn reset_locks() {
    MAKE.reset();
    for set in SET.iter().filter(|set| set.users.load(Ordering::Relaxed) > 0) {
        set.lock.reset();
        set.sleepers.store(0, Ordering::Relaxed);
        set.waiters.close();
    }
}

/// Moves private descriptors away from the number `fd`.
pub(crate) fn leave(fd: c_int) {
    for set in SET.iter().filter(|set| set.users.load(Ordering::Relaxed) > 0) {
        set.changed.leave(fd);
        set.waiters.leave(fd);
    }
}

impl Watch {
    /// Synchronises the descriptor, and returns the events to report, and the moves of its tails in any case.
    fn look(&mut self) -> Ready {
        if self.fd < 0 || self.is_spent {
            return Ready::default();
        }
        let ready = match table::entry(self.fd) {
            // The numbers of the events are those of poll.
            Entry::File(_) => file::of(self.fd)
                .map_or_else(Ready::default, |file| sync::poll_once(&file, self.fd, self.events as c_short)),
            Entry::Set(inner) => {
                let ready = look(inner);
                Ready { events: ready.events & self.events as c_short, ..ready }
            }
            Entry::Other | Entry::Private => return Ready::default(),
        };
        self.is_bad |= ready.bad;
        let events = ready.events | if self.is_bad { POLLERR } else { 0 };
        if events == 0 {
            self.reported = None;
        }
        let is_old = self.events & EPOLLET as u32 != 0 && !self.is_bad && self.reported == Some(ready.moves);
        Ready { events: if is_old { 0 } else { events }, ..ready }
    }

    /// Returns the event to report, and notes that it is reported.
    fn take(&mut self) -> Option<epoll_event> {
        let ready = self.look();
        if ready.events == 0 {
            return None;
        }
        self.reported = Some(ready.moves);
        self.is_bad = false;
        self.is_spent = self.events & EPOLLONESHOT as u32 != 0;
        Some(epoll_event { events: ready.events as u16 as u32, u64: self.data })
    }
}

/// Synchronises all watches of a set. The events are `POLLIN` and `POLLRDNORM` if there is something to report.
pub(super) fn look(set: u16) -> Ready {
    let mut all = Ready::default();
    let looked = with(set, |contents| {
        for ready in contents.watches.iter_mut().map(Watch::look) {
            all.events |= if ready.events != 0 { POLLIN | POLLRDNORM } else { 0 };
            all.moves = all.moves.wrapping_add(ready.moves);
            all.is_partial |= ready.is_partial;
        }
    });
    all.is_partial |= looked.is_none();
    all
}

/// Calls `act` with each watch that is not spent. Returns false if this is a signal handler, and its own thread works with the set.
pub(super) fn each_watch(set: u16, mut act: impl FnMut(Watch)) -> bool {
    let Some(watches) = with(set, |contents| contents.watches) else { return false };
    watches.into_iter().filter(|watch| watch.fd >= 0 && !watch.is_spent).for_each(&mut act);
    true
}

/// Looks now and then for ends of registrations, for a program that does not sleep. Returns true if it finds one.
pub(super) fn is_found_ended(set: u16) -> bool {
    let mut any = false;
    each_watch(set, |watch| {
        any |= match table::entry(watch.fd) {
            Entry::File(_) => file::of(watch.fd).is_some_and(|file| sync::is_found_gone(&file, watch.fd)),
            Entry::Set(inner) => is_found_ended(inner),
            Entry::Other | Entry::Private => false,
        };
    });
    any
}

/// Writes what is ready to `events`, and returns its number. `own` fetches the events of the kernel's set.
///
/// Each place has its turn: a descriptor that is always ready does not keep others out of a small array.
///
/// # Errors
/// Those of `own`.
pub(super) fn collect(
    set: u16,
    events: &mut [epoll_event],
    own: impl Fn(&mut [epoll_event]) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    let mut count = 0;
    with(set, |contents| {
        let first = contents.next;
        for place in (first..=WATCHES).chain(0..first) {
            if count == events.len() {
                break;
            }
            let before = count;
            if let Some(watch) = contents.watches.get_mut(place) {
                if let Some(event) = watch.take() {
                    events[count] = event;
                    count += 1;
                }
            } else {
                count += own(&mut events[count..])?;
            }
            if count > before {
                contents.next = (place + 1) % (WATCHES + 1);
            }
        }
        Ok(count)
    })
    .unwrap_or(Ok(0))
    .or_else(|error| if count > 0 { Ok(count) } else { Err(error) })
}

/// Notes that `changed` was seen in the kernel's set, and takes it out after enough looks.
pub(super) fn see_token(set: u16, set_fd: c_int) {
    rustix::thread::sched_yield();
    with(set, |contents| {
        if contents.looks == 1 {
            forget_token(set, set_fd, contents);
        } else {
            contents.looks = contents.looks.saturating_sub(1);
        }
    });
}

/// Takes `changed` out of the kernel's set, so that the set is readable only for the program's descriptors.
pub(super) fn lose_token(set: u16, set_fd: c_int) {
    with(set, |contents| forget_token(set, set_fd, contents));
}

fn forget_token(set: u16, set_fd: c_int, contents: &mut Contents) {
    if contents.looks > 0 {
        contents.looks = 0;
        let _ = control(set_fd, EPOLL_CTL_DEL, SET[usize::from(set)].changed.raw(), epoll_event { events: 0, u64: 0 });
    }
}

/// Returns the number of a descriptor that becomes readable when the set changes, until [`end_wait`].
pub(super) fn begin_wait(set: u16) -> c_int {
    let set = &SET[usize::from(set)];
    set.sleepers.fetch_add(1, Ordering::SeqCst);
    set.changed.get().and_then(|changed| set.waiters.begin(changed)).unwrap_or(set.changed.raw())
}

/// Ends a wait for the descriptor of this number, in the set of this generation. `is_called`: it has become readable.
pub(super) fn end_wait(set: u16, generation: u32, number: c_int, is_called: bool) {
    let set = &SET[usize::from(set)];
    // What the wait has taken went with its set.
    if set.generation.load(Ordering::SeqCst) != generation {
        return;
    }
    set.waiters.end(number, is_called);
    let _ = set.sleepers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
}

/// The events of epoll and of poll have the same numbers.
const _: () = assert!(EPOLLIN == POLLIN as c_int && libc::EPOLLERR == POLLERR as c_int);
