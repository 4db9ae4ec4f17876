//! Open netmap files: what this process knows about each connection to the daemon.
//!
//! Descriptors that `dup` made share one file, as in the kernel. A file is found from a descriptor without a lock, and is pinned while a call
//! uses it, so that a `close` by another thread does not take the memory away from under the call.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use ringway_abi::Layout;
use ringway_abi::doorbell::PAIR_BYTES;
use ringway_abi::layout::netmap_ring;
use ringway_abi::netmap::{Granted, Polling, Request};
use ringway_abi::slot::SLOT_BYTES;

use crate::daemon::{self, Dialogue, Given};
use crate::dialogue::Tags;
use crate::lock::Lock;
use crate::private::Private;
use crate::region::Used;
use crate::ring::{Dir, Ring};
use crate::table::{self, Entry};
use crate::waiters::{Place, Waiters};

/// Most files that one process has open at the same time.
const FILES: usize = 1024;
/// In `users`: the last user has gone, and the file is being taken apart.
const ENDING: u32 = 1 << 31;

/// What is known about the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// There was none when this process looked last.
    Open = 0,
    /// This process has not asked yet: the descriptor was inherited or passed.
    Unknown = 1,
    /// The rings are mapped.
    Registered = 2,
    /// The daemon has ended it, or has gone.
    Ended = 3,
}

/// A registration.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) region: Used,
    pub(crate) layout: Layout,
    pub(crate) tx: Range<u16>,
    pub(crate) rx: Range<u16>,
    /// It is an end of a pipe.
    pub(crate) is_pipe: bool,
    pub(crate) polling: Polling,
}

/// An open file.
pub(crate) struct File {
    /// Descriptors and calls that use the file.
    users: AtomicU32,
    /// How many files were in this place before.
    generation: AtomicU32,
    state: AtomicU32,
    /// Written once, before `state` becomes [`State::Registered`].
    registration: UnsafeCell<Option<Registration>>,
    pub(crate) kick: Private,
    pub(crate) call: Private,
    /// Held while a request waits for its answer.
    pub(crate) request: Lock,
    /// The requests' tags.
    tags: Tags,
    /// Threads that sleep for a call.
    pub(crate) waiters: Waiters,
    /// Synchronisations in a row that moved nothing, and when the connection was looked at last, in seconds.
    pub(crate) idle: AtomicU32,
    pub(crate) looked: AtomicI64,
}

// SAFETY: the registration is written by the thread that holds the request lock, before the state is published as registered, and read only
// after that. It is taken away when the last user has gone.
unsafe impl Sync for File {}

static FILE: [File; FILES] = [const {
    File {
        users: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        state: AtomicU32::new(0),
        registration: UnsafeCell::new(None),
        kick: Private::none(),
        call: Private::none(),
        request: Lock::new(),
        tags: Tags::none(),
        waiters: Waiters::none(),
        idle: AtomicU32::new(0),
        looked: AtomicI64::new(0),
    }
}; FILES];

/// A file in use.
pub(crate) struct Pinned {
    file: &'static File,
    index: u16,
}

impl Deref for Pinned {
    type Target = File;

    fn deref(&self) -> &File {
        self.file
    }
}

/// What no other file of the process has, before or after one: its place, and how many were there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u16, u32);

impl Pinned {
    /// Returns the file's identity.
    pub(crate) fn identity(&self) -> Identity {
        Identity(self.index, self.generation.load(Ordering::Relaxed))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.file.unuse();
    }
}

/// Returns the file of a descriptor, or `None` if it is no netmap descriptor.
#[inline]
pub(crate) fn of(fd: c_int) -> Option<Pinned> {
    let Entry::File(index) = table::entry(fd) else { return None };
    let file = &FILE[usize::from(index)];
    let pinned = file.use_once().then_some(Pinned { file, index })?;
    // The number may have become another file's meanwhile.
    (table::entry(fd) == Entry::File(index)).then_some(pinned)
}

/// As [`of`], if it is the file with this identity.
pub(crate) fn same(fd: c_int, identity: Identity) -> Option<Pinned> {
    of(fd).filter(|file| file.identity() == identity)
}

/// Makes a file in this state for a descriptor.
///
/// # Errors
/// EMFILE: there are too many, or the number is too large.
pub(crate) fn make(fd: c_int, state: State) -> Result<Pinned, c_int> {
    let is_free = |file: &File| file.users.compare_exchange(0, 2, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let index = FILE.iter().position(is_free).ok_or(libc::EMFILE)?;
    let file = &FILE[index];
    file.state.store(state as u32, Ordering::Release);
    file.tags.reset();
    let pinned = Pinned { file, index: index as u16 };
    if table::set(fd, Entry::File(pinned.index)) {
        Ok(pinned)
    } else {
        file.unuse();
        Err(libc::EMFILE)
    }
}

/// Returns true if the table does not know the descriptor, and it is a netmap descriptor that was inherited or passed.
pub(crate) fn is_unknown(fd: c_int) -> bool {
    if fd < 0 || table::entry(fd) != Entry::Other {
        return false;
    }
    // SAFETY: the caller's own number. If it is closed, the kernel says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    crate::errno::kept(|| daemon::is_connection(borrowed))
}

/// Notes that `new` is a duplicate of `old`, a netmap descriptor.
pub(crate) fn duplicate(file: &Pinned, new: c_int) {
    if file.use_once() && !table::set(new, Entry::File(file.index)) {
        file.unuse();
    }
}

/// Forgets a descriptor that is closed or about to be.
pub(crate) fn forget(fd: c_int) {
    if let Some(file) = of(fd) {
        table::set(fd, Entry::Other);
        file.unuse();
    }
}

/// Frees all locks in the child of a fork, and closes what it must not share.
pub(crate) fn reset_locks() {
    crate::region::LOCK.reset();
    for file in FILE.iter().filter(|file| file.users.load(Ordering::Relaxed) != 0) {
        file.request.reset();
        file.tags.reset();
        file.waiters.close();
    }
}

/// Moves private descriptors away from the number `fd`.
pub(crate) fn leave(fd: c_int) {
    crate::region::leave(fd);
    for file in FILE.iter().filter(|file| file.users.load(Ordering::Relaxed) != 0) {
        file.kick.leave(fd);
        file.call.leave(fd);
        file.waiters.leave(fd);
    }
}

impl File {
    fn use_once(&self) -> bool {
        let more = |users: u32| (users != 0 && users & ENDING == 0).then_some(users + 1);
        self.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    fn unuse(&self) {
        let fewer = |users: u32| Some(if users == 1 { ENDING } else { users - 1 });
        if self.users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer) != Ok(1) {
            return;
        }
        self.kick.close();
        self.call.close();
        self.waiters.close();
        // SAFETY: nobody else uses the file.
        if let Some(registration) = unsafe { (*self.registration.get()).take() } {
            registration.region.end();
        }
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.users.store(0, Ordering::Release);
    }

    /// Returns the state.
    #[inline]
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Open,
            1 => State::Unknown,
            2 => State::Registered,
            _ => State::Ended,
        }
    }

    /// Notes that the daemon has ended the registration.
    pub(crate) fn end(&self) {
        self.state.store(State::Ended as u32, Ordering::Release);
    }

    /// Returns true if this process would have to ask the daemon for a registration.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.state(), State::Open | State::Unknown)
    }

    /// Returns the registration, if this process knows one.
    #[inline]
    pub(crate) fn known(&self) -> Option<&Registration> {
        // SAFETY: published before the state, and not changed after it.
        (self.state() == State::Registered).then(|| unsafe { (*self.registration.get()).as_ref() })?
    }

    /// Returns the registration. Asks the daemon for it if the descriptor came from another process, or if another process that shares the
    /// descriptor may have made one.
    ///
    /// # Errors
    /// ENXIO: there is none. EBUSY: this is a signal handler, and its own thread asks the daemon.
    #[inline]
    pub(crate) fn registration(&self, fd: c_int) -> Result<&Registration, c_int> {
        match self.known() {
            Some(registration) => Ok(registration),
            None => self.recall(fd),
        }
    }

    #[cold]
    fn recall(&self, fd: c_int) -> Result<&Registration, c_int> {
        if self.state() == State::Ended {
            return Err(libc::ENXIO);
        }
        // In a signal handler, the thread's own request may be going on.
        let held = self.request.take_outer().ok_or(libc::EBUSY)?;
        if self.known().is_none() {
            let answer = crate::errno::kept(|| daemon::ask_for_registration(self.dialogue(fd), &Request::Recall));
            let (granted, given) = answer.map_err(|_| {
                self.state.store(State::Open as u32, Ordering::Release);
                libc::ENXIO
            })?;
            self.take(&granted, given)?;
        }
        drop(held);
        self.known().ok_or(libc::ENXIO)
    }

    /// Maps what the daemon has granted. The caller holds the request lock, and the file has no registration.
    ///
    /// # Errors
    /// ENOMEM: the memory cannot be mapped, or is not what was announced.
    pub(crate) fn take(&self, granted: &Granted, given: Given) -> Result<&Registration, c_int> {
        let layout = granted.layout().map_err(|_| libc::EPROTO)?;
        let rings = |rings: &Range<u16>, most: u16| rings.start <= rings.end && rings.end <= most;
        if !rings(&granted.tx, layout.shape.tx_rings) || !rings(&granted.rx, layout.shape.rx_rings) {
            return Err(libc::EPROTO);
        }
        let region = Used::new(given.memory, layout.bytes).ok_or(libc::ENOMEM)?;
        self.kick.put(given.kick);
        self.call.put(given.call);
        // SAFETY: the state says that there is no registration, and the request lock keeps other writers away.
        let slot = unsafe { &mut *self.registration.get() };
        let (tx, rx, is_pipe) = (granted.tx.clone(), granted.rx.clone(), granted.numbers.name.pipe.is_some());
        if let Some(old) = slot.replace(Registration { region, layout, tx, rx, is_pipe, polling: granted.polling }) {
            old.region.end();
        }
        self.state.store(State::Registered as u32, Ordering::Release);
        self.known().ok_or(libc::ENXIO)
    }

    /// Returns the dialogue with the daemon on one of the file's descriptors.
    pub(crate) fn dialogue(&self, fd: c_int) -> Dialogue<'_> {
        // SAFETY: the caller's descriptor, which the table knows.
        Dialogue { socket: unsafe { BorrowedFd::borrow_raw(fd) }, tags: &self.tags }
    }

    /// Returns true if the daemon has ended the registration. Asks the kernel.
    pub(crate) fn look_for_end(&self, fd: c_int) -> bool {
        if self.state() != State::Ended && daemon::has_ended(self.dialogue(fd).socket) {
            self.end();
        }
        self.state() == State::Ended
    }

    /// Returns the number of a descriptor that becomes readable with each call, and a place that the caller gives back by [`Waiters::end`].
    /// If there are too many waiters, this is one that is always readable: the thread then waits without sleeping.
    pub(crate) fn begin_wait(&self) -> (c_int, Option<Place>) {
        let generation = self.generation.load(Ordering::Relaxed);
        match self.call.get().and_then(|call| self.waiters.begin(call, generation)) {
            Some((number, place)) => (number, Some(place)),
            None => (self.call.raw(), None),
        }
    }

    /// Wakes the switch.
    #[cold]
    pub(crate) fn kick_switch(&self) {
        if let Some(kick) = self.kick.get() {
            // The daemon has made the eventfd non-blocking. If its counter is full, it is readable already.
            let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
        }
    }
}

impl Registration {
    /// Returns the places of a ring.
    pub(crate) fn ring(&self, dir: Dir, ring: u16) -> Option<Ring> {
        let shape = &self.layout.shape;
        let (at, turn, slots) = match dir {
            Dir::Tx => (self.layout.tx_ring(ring), self.layout.tx_lock(ring), shape.tx_slots),
            Dir::Rx => (self.layout.rx_ring(ring), self.layout.rx_lock(ring), shape.rx_slots),
        };
        let buffers = self.layout.buffer_count as usize * shape.buffer_size as usize;
        Some(Ring {
            header: self.region.place(at, netmap_ring::SLOTS + slots as usize * SLOT_BYTES)?,
            bell: self.region.place(self.layout.doorbell(ring), PAIR_BYTES)?,
            turn: self.region.place(turn, size_of::<u64>())?,
            buffers: self.region.place(self.layout.buffers, buffers)?,
            slots,
            buffer_count: self.layout.buffer_count,
            buffer_size: shape.buffer_size,
            dir,
            is_pipe: self.is_pipe,
        })
    }

    /// Returns the bound rings of a direction.
    pub(crate) fn rings(&self, dir: Dir) -> impl Iterator<Item = Ring> + '_ {
        let range = match dir {
            Dir::Tx => self.tx.clone(),
            Dir::Rx => self.rx.clone(),
        };
        range.filter_map(move |ring| self.ring(dir, ring))
    }
}
