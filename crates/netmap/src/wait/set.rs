//! Epoll sets that have netmap descriptors: what is known about them.
//!
//! The kernel's set has the program's other descriptors. The netmap descriptors, and the sets of netmap descriptors within the set, are
//! watches here: a thread that waits looks after them itself, and sleeps for their calls and for the kernel's set at the same time.
//!
//! Threads sleep while others change a set. A thread that has looked after the set sleeps for its `changed` as well. A thread that went
//! to sleep in libc's `epoll_wait` before the set had netmap descriptors wakes up because `changed` is in the kernel's set at first, with
//! [`TOKEN`] as its data: the `epoll_wait` of the library, in each process that has the set, takes such events out.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_short};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, POLLERR, POLLIN, POLLRDNORM,
    epoll_event,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::file::{self, Identity};
use crate::lock::Lock;
use crate::private::Private;
use crate::sync::{self, Ready};
use crate::table::{self, Entry};
use crate::waiters::{Place, Waiters};

/// Most epoll sets with netmap descriptors in a process, and most such descriptors in a set.
const SETS: usize = 64;
const WATCHES: usize = 64;
/// Looks after which `changed` leaves the kernel's set. Until then it wakes the threads that sleep in libc's `epoll_wait`: the kernel wakes
/// one at a time. A thread that sleeps on only leaves the netmap descriptors to the others.
const LOOKS: u32 = 16;
/// The data of the library's own events. A random number: no program has it.
const TOKEN: u64 = 0x9b1f_6ad3_58e4_c027;

/// What no other set of the process has, before or after one: its place, and how many were there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    place: u16,
    generation: u32,
}

/// Why a thread does not work with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed {
    /// This is a signal handler, and its own thread does.
    Own,
    /// The set is closed.
    Ended,
}

/// What a watch looks after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Nothing,
    File(Identity),
    Set(Id),
}

impl Watched {
    /// Returns what a descriptor is.
    fn of(fd: c_int) -> Self {
        match table::entry(fd) {
            Entry::File(_) => file::of(fd).map_or(Self::Nothing, |file| Self::File(file.identity())),
            Entry::Set(_) => of(fd).map_or(Self::Nothing, Self::Set),
            Entry::Other | Entry::Private => Self::Nothing,
        }
    }
}

/// A netmap descriptor in a set, or a set of them. A signal handler that closes the descriptor may leave the watch behind: the number is then
/// closed, or another file's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// The descriptor, or -1.
    pub(super) fd: c_int,
    pub(super) watched: Watched,
    pub(super) events: u32,
    data: u64,
    /// The daemon was asked for the registration since the watch is in the set. Until then a file that may have one is not reported.
    is_asked: bool,
    /// Edge-triggered: the moves of the tails at the last report. `None`: the next look reports the descriptor again.
    reported: Option<u64>,
    /// A look found a ring with bad positions and reset it, and no wait has reported it yet.
    is_bad: bool,
    /// `EPOLLONESHOT`, and reported.
    pub(super) is_spent: bool,
}

const UNUSED: Watch = Watch {
    fd: -1,
    watched: Watched::Nothing,
    events: 0,
    data: 0,
    is_asked: false,
    reported: None,
    is_bad: false,
    is_spent: false,
};

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
    /// A watch may look after a registration that this process does not know. Written by the holder of the lock.
    has_unknown: AtomicBool,
    /// An eventfd: readable since the set is known, and written when a watch changes.
    changed: Private,
    /// Threads that sleep for `changed`.
    waiters: Waiters,
    contents: UnsafeCell<Contents>,
}

// SAFETY: the contents are used by the holder of the lock only.
unsafe impl Sync for Set {}

static SET: [Set; SETS] = [const {
    Set {
        users: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        lock: Lock::new(),
        has_unknown: AtomicBool::new(false),
        changed: Private::none(),
        waiters: Waiters::none(),
        contents: UnsafeCell::new(EMPTY),
    }
}; SETS];
/// Held while a set becomes known, also over a wait for the lock of its place.
static MAKE: Lock = Lock::new();

impl Id {
    fn set(self) -> &'static Set {
        &SET[usize::from(self.place)]
    }

    /// Returns false if the set is closed.
    fn is_current(self) -> bool {
        self.set().generation.load(Ordering::SeqCst) == self.generation
    }
}

/// Returns the set of a descriptor, if it has netmap descriptors.
pub(crate) fn of(fd: c_int) -> Option<Id> {
    let Entry::Set(place) = table::entry(fd) else { return None };
    let id = Id { place, generation: SET[usize::from(place)].generation.load(Ordering::SeqCst) };
    (table::entry(fd) == Entry::Set(place)).then_some(id)
}

/// Works with what is in a set's place. `None`: this is a signal handler, and its own thread does so.
fn with_place<T>(place: u16, work: impl FnOnce(&mut Contents) -> T) -> Option<T> {
    let set = &SET[usize::from(place)];
    let _held = set.lock.take()?;
    // SAFETY: the lock is held.
    Some(work(unsafe { &mut *set.contents.get() }))
}

/// Works with a set. Another one that takes its place waits for the end of the work.
fn with<T>(id: Id, work: impl FnOnce(&mut Contents) -> T) -> Result<T, Missed> {
    with_place(id.place, |contents| id.is_current().then(|| work(contents))).ok_or(Missed::Own)?.ok_or(Missed::Ended)
}

/// Takes the library's own events out. Returns the number of the program's.
pub(super) fn without_tokens(events: &mut [epoll_event]) -> usize {
    let mut kept = 0;
    for at in 0..events.len() {
        let event = events[at];
        if event.u64 != TOKEN {
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
    if let Some(inner) = of(fd) {
        // The kernel knows the other descriptors of a set within a set, and refuses circles.
        lose_token(inner, fd);
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
    let id = match table::entry(set_fd) {
        Entry::Set(_) => of(set_fd).ok_or(libc::EBADF)?,
        Entry::Other if operation == EPOLL_CTL_ADD => make(set_fd)?,
        Entry::Other => return Err(libc::ENOENT),
        _ => return Err(libc::EINVAL),
    };
    let watched = match Watched::of(fd) {
        // Another thread has closed it.
        Watched::Nothing => return Err(libc::EBADF),
        watched => watched,
    };
    let changed = with(id, |contents| {
        let known = contents.watches.iter_mut().find(|watch| watch.fd == fd && watch.watched == watched);
        let fresh = Watch { fd, watched, events: event.events, data: event.u64, ..UNUSED };
        match (operation, known) {
            (EPOLL_CTL_ADD, Some(_)) => return Err(libc::EEXIST),
            (EPOLL_CTL_ADD, None) => {
                *contents.watches.iter_mut().find(|watch| !watch.is_current()).ok_or(libc::ENOSPC)? = fresh;
            }
            (EPOLL_CTL_MOD, Some(watch)) => *watch = fresh,
            (EPOLL_CTL_DEL, Some(watch)) => *watch = UNUSED,
            _ => return Err(libc::ENOENT),
        }
        id.set().has_unknown.store(contents.watches.iter().any(Watch::may_be_unknown), Ordering::Relaxed);
        Ok(())
    });
    changed.unwrap_or_else(|missed| Err(if missed == Missed::Own { libc::EBUSY } else { libc::EBADF }))?;
    if let Some(changed) = id.set().changed.get() {
        let _ = rustix::io::write(changed, &1u64.to_ne_bytes());
    }
    Ok(())
}

/// Makes an epoll descriptor known, unless another thread has.
fn make(set_fd: c_int) -> Result<Id, c_int> {
    let _held = MAKE.take_outer().ok_or(libc::EBUSY)?;
    if let Some(id) = of(set_fd) {
        return Ok(id);
    }
    let is_free = |set: &Set| set.users.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let place = SET.iter().position(is_free).ok_or(libc::ENOSPC)? as u16;
    let set = &SET[usize::from(place)];
    let id = Id { place, generation: set.generation.load(Ordering::SeqCst) };
    let emptied = with(id, |contents| {
        *contents = Contents { looks: LOOKS, ..EMPTY };
        // One that a thread has taken while its set was closed.
        set.waiters.close();
    });
    if emptied.is_err() {
        set.users.store(0, Ordering::Release);
        return Err(libc::EBUSY);
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let made = eventfd(1, flags).map_err(rustix::io::Errno::raw_os_error).and_then(|changed| {
        set.changed.put(changed);
        let event = |events| epoll_event { events, u64: TOKEN };
        control(set_fd, EPOLL_CTL_ADD, set.changed.raw(), event(0))?;
        if !table::set(set_fd, Entry::Set(place)) {
            return Err(libc::ENOSPC);
        }
        // Only now: a thread that this wakes up looks whether the set is known.
        control(set_fd, EPOLL_CTL_MOD, set.changed.raw(), event(EPOLLIN as u32)).map(|()| id)
    });
    if made.is_err() {
        table::set(set_fd, Entry::Other);
        end(set);
    }
    made
}

fn end(set: &Set) {
    // Its sleepers find that it has ended, and a thread that begins to sleep gives back what it has taken.
    set.generation.fetch_add(1, Ordering::SeqCst);
    set.waiters.close();
    set.changed.close();
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
    for (place, _) in SET.iter().enumerate().filter(|(_, set)| set.users.load(Ordering::Relaxed) > 0) {
        with_place(place as u16, |contents| {
            contents.watches.iter_mut().filter(|watch| watch.fd == fd).for_each(|watch| *watch = UNUSED);
        });
    }
}

/// Frees all locks in the child of a fork, where the other threads do not exist, and closes what it must not share.
pub(crate) fn reset_locks() {
    MAKE.reset();
    for set in &SET {
        // A thread may have worked with a set that was closed.
        set.lock.reset();
        if set.users.load(Ordering::Relaxed) > 0 {
            set.waiters.close();
        }
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
    /// Returns false if nothing is watched any more.
    fn is_current(&self) -> bool {
        self.watched != Watched::Nothing && Watched::of(self.fd) == self.watched
    }

    /// Returns true if this process may have to ask the daemon before it can look.
    fn may_be_unknown(&self) -> bool {
        match self.watched {
            Watched::Nothing => false,
            Watched::File(identity) => file::same(self.fd, identity).is_some_and(|file| file.is_unknown()),
            Watched::Set(_) => true,
        }
    }

    /// Synchronises the descriptor, and returns the events to report, and the moves of its tails in any case.
    fn look(&mut self) -> Ready {
        if self.fd < 0 || self.is_spent {
            return Ready::default();
        }
        let ready = match self.watched {
            // The numbers of the events are those of poll.
            Watched::File(identity) => match file::same(self.fd, identity) {
                Some(file) => sync::poll_known(&file, self.events as c_short, self.is_asked),
                None => return Ready::default(),
            },
            Watched::Set(inner) if of(self.fd) == Some(inner) => {
                let ready = look_known(inner);
                Ready { events: ready.events & self.events as c_short, ..ready }
            }
            Watched::Set(_) | Watched::Nothing => return Ready::default(),
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
pub(super) fn look(id: Id) -> Ready {
    recall(id);
    look_known(id)
}

/// Asks the daemon for the registrations that this process does not know. That can last, so that the set's lock is not held.
pub(super) fn recall(id: Id) {
    if !id.set().has_unknown.load(Ordering::Relaxed) {
        return;
    }
    let Ok(mut watches) = with(id, |contents| contents.watches) else { return };
    for watch in watches.iter_mut().filter(|watch| !watch.is_spent) {
        match watch.watched {
            Watched::File(identity) => {
                if let Some(file) = file::same(watch.fd, identity) {
                    watch.is_asked = file.registration(watch.fd).err() != Some(libc::EBUSY);
                }
            }
            Watched::Set(inner) => recall(inner),
            Watched::Nothing => {}
        }
    }
    let _ = with(id, |contents| {
        for (watch, asked) in contents.watches.iter_mut().zip(&watches) {
            watch.is_asked |= asked.is_asked && (watch.fd, watch.watched) == (asked.fd, asked.watched);
        }
        id.set().has_unknown.store(contents.watches.iter().any(Watch::may_be_unknown), Ordering::Relaxed);
    });
}

/// As [`look`], without asking the daemon.
fn look_known(id: Id) -> Ready {
    let mut all = Ready::default();
    let looked = with(id, |contents| {
        for ready in contents.watches.iter_mut().map(Watch::look) {
            all.events |= if ready.events != 0 { POLLIN | POLLRDNORM } else { 0 };
            all.moves = all.moves.wrapping_add(ready.moves);
            all.is_partial |= ready.is_partial;
        }
    });
    all.is_partial |= looked == Err(Missed::Own);
    all
}

/// Calls `act` with each watch that is not spent. Returns false if this is a signal handler, and its own thread works with the set.
pub(super) fn each_watch(id: Id, mut act: impl FnMut(Watch)) -> bool {
    match with(id, |contents| contents.watches) {
        Ok(watches) => {
            watches.into_iter().filter(|watch| watch.fd >= 0 && !watch.is_spent).for_each(&mut act);
            true
        }
        Err(missed) => missed != Missed::Own,
    }
}

/// Looks now and then for ends of registrations, for a program that does not sleep. Returns true if it finds one.
pub(super) fn is_found_ended(id: Id) -> bool {
    let mut any = false;
    each_watch(id, |watch| {
        any |= match watch.watched {
            Watched::File(identity) => {
                file::same(watch.fd, identity).is_some_and(|file| sync::is_found_gone(&file, watch.fd))
            }
            Watched::Set(inner) => is_found_ended(inner),
            Watched::Nothing => false,
        };
    });
    any
}

/// Writes what is ready to `events`, and returns its number. `own` fetches the events of the kernel's set.
///
/// Each place has its turn: a descriptor that is always ready does not keep others out of a small array.
///
/// # Errors
/// Those of `own`. EBADF: the set is closed.
pub(super) fn collect(
    id: Id,
    events: &mut [epoll_event],
    own: impl Fn(&mut [epoll_event]) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    let mut count = 0;
    let collected = with(id, |contents| {
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
    });
    let collected = collected.unwrap_or_else(|missed| if missed == Missed::Own { Ok(0) } else { Err(libc::EBADF) });
    collected.or_else(|error| if count > 0 { Ok(count) } else { Err(error) })
}

/// Notes that `changed` was seen in the kernel's set, and takes it out after enough looks.
pub(super) fn see_token(id: Id, set_fd: c_int) {
    rustix::thread::sched_yield();
    let _ = with(id, |contents| {
        if contents.looks == 1 {
            forget_token(id, set_fd, contents);
        } else {
            contents.looks = contents.looks.saturating_sub(1);
        }
    });
}

/// Takes `changed` out of the kernel's set, so that the set is readable only for the program's descriptors.
pub(super) fn lose_token(id: Id, set_fd: c_int) {
    let _ = with(id, |contents| forget_token(id, set_fd, contents));
}

fn forget_token(id: Id, set_fd: c_int, contents: &mut Contents) {
    if contents.looks > 0 {
        contents.looks = 0;
        let _ = control(set_fd, EPOLL_CTL_DEL, id.set().changed.raw(), epoll_event { events: 0, u64: 0 });
    }
}

/// Returns the number of a descriptor that becomes readable when the set changes, and a place that the caller gives back by [`end_wait`].
/// -1: the set is closed.
pub(super) fn begin_wait(id: Id) -> (c_int, Option<Place>) {
    let set = id.set();
    let begun = set.changed.get().and_then(|changed| set.waiters.begin(changed, id.generation));
    let (number, place) = begun.map_or((set.changed.raw(), None), |(number, place)| (number, Some(place)));
    if id.is_current() {
        return (number, place);
    }
    end_wait(id, place, false);
    (-1, None)
}

/// Ends a wait. `is_called`: its descriptor has become readable.
pub(super) fn end_wait(id: Id, place: Option<Place>, is_called: bool) {
    if let Some(place) = place {
        id.set().waiters.end(place, is_called);
    }
}

/// The events of epoll and of poll have the same numbers.
const _: () = assert!(EPOLLIN == POLLIN as c_int && libc::EPOLLERR == POLLERR as c_int);
