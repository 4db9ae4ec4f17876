//! The sleep of a thread that waits, in the kernel.
//!
//! A netmap descriptor is represented by two others: one that becomes readable with the switch's call, and the connection, for its end. A
//! set of netmap descriptors is represented by itself for the program's other descriptors, by one that becomes readable when the set
//! changes, and by its watches.
//!
//! The sleep is a call of libc's `ppoll`, in which `pthread_cancel` ends a thread by unwinding through this library. Nothing between
//! there and the interposed function has a destructor then: a handler of the thread gives back what the sleep has taken.

use std::ffi::{c_int, c_short, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};

use libc::{POLLERR, POLLHUP, POLLIN, POLLRDHUP, nfds_t, pollfd, sigset_t, timespec};

use super::mask::Mask;
use super::set::{self, Watched};
use super::time::Limit;
use crate::file::{self, Identity, Pinned, State};
use crate::real::call_real;
use crate::sync;
use crate::waiters::Place;

/// Descriptors for which no memory has to be made.
const ON_STACK: usize = 128;
/// Limit of a sleep that may miss something, in nanoseconds.
const LOOK_AGAIN: i64 = 1_000_000_000;
const NONE: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// What a descriptor of the kernel's call stands for.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// The program's descriptor at this place of its array.
    Program(usize),
    /// The calls for a netmap descriptor: which file it was, its place there, and whether the switch was asked for calls.
    Calls { fd: c_int, events: c_short, file: Identity, place: Option<Place>, is_asked: bool },
    /// The connection of a netmap descriptor, and which file it was.
    Connection(Identity),
    /// The changes of a set, and the place there.
    Changes(set::Id, Option<Place>),
}

/// An array on the stack, or on the heap if it is too long.
struct Array<T> {
    stack: [T; ON_STACK],
    used: usize,
    heap: ManuallyDrop<Vec<T>>,
}

impl<T: Copy> Array<T> {
    const fn of(none: T) -> Self {
        Self { stack: [none; ON_STACK], used: 0, heap: ManuallyDrop::new(Vec::new()) }
    }

    fn push(&mut self, item: T) {
        if self.used < ON_STACK {
            self.stack[self.used] = item;
        } else {
            if self.used == ON_STACK {
                self.heap.extend_from_slice(&self.stack);
            }
            self.heap.push(item);
        }
        self.used += 1;
    }

    fn items(&mut self) -> &mut [T] {
        if self.used <= ON_STACK { &mut self.stack[..self.used] } else { &mut self.heap[..] }
    }
}

/// What a thread sleeps for. Its user calls [`Sleep::end`]: it has no destructor.
pub(super) struct Sleep {
    descriptors: Array<pollfd>,
    whys: Array<Why>,
    /// The thread could not look at, or ask for, all that it sleeps for: it looks again after a second.
    pub(super) is_partial: bool,
}

impl Sleep {
    pub(super) const fn new() -> Self {
        Self { descriptors: Array::of(NONE), whys: Array::of(Why::Program(0)), is_partial: false }
    }

    fn add(&mut self, fd: c_int, events: c_short, why: Why) {
        self.descriptors.push(pollfd { fd, events, revents: 0 });
        self.whys.push(why);
    }

    /// Adds a descriptor of the program as it is, with its place in the program's array.
    pub(super) fn add_program(&mut self, place: usize, fd: c_int, events: c_short) {
        self.add(fd, events, Why::Program(place));
    }

    /// Adds the connection of a netmap descriptor.
    pub(super) fn add_connection(&mut self, fd: c_int) {
        let Some(file) = file::of(fd) else { return };
        // Its answers are for requests, not for those who wait.
        self.add(fd, POLLRDHUP, Why::Connection(file.identity()));
    }

    /// Adds a netmap descriptor, and asks the switch for a call when one of the events becomes ready.
    pub(super) fn add_file(&mut self, file: Option<Pinned>, fd: c_int, events: c_short) {
        // One that has ended stays so: there is nothing to sleep for.
        let Some(file) = file.filter(|file| file.state() != State::Ended) else { return };
        let is_asked = sync::ask(&file, events);
        self.is_partial |= !is_asked;
        let (number, place) = file.begin_wait();
        self.add(number, POLLIN, Why::Calls { fd, events, file: file.identity(), place, is_asked });
        self.add_connection(fd);
    }

    /// Adds the netmap descriptors of a set.
    pub(super) fn add_set(&mut self, id: set::Id) {
        let (number, place) = set::begin_wait(id);
        self.add(number, POLLIN, Why::Changes(id, place));
        let is_whole = set::each_watch(id, |watch| match watch.watched {
            Watched::File(identity) => self.add_file(file::same(watch.fd, identity), watch.fd, watch.events as c_short),
            Watched::Set(inner) => self.add_set(inner),
            Watched::Nothing => {}
        });
        self.is_partial |= !is_whole;
    }

    /// Sleeps in the kernel. The program's signal mask and `pthread_cancel` have their effect.
    ///
    /// # Errors
    /// As `ppoll`.
    pub(super) fn run(&mut self, limit: Limit, mask: Mask) -> Result<(), c_int> {
        let left = if self.is_partial { limit.at_most(LOOK_AGAIN) } else { limit }.left();
        let time = left.as_ref().map_or(null(), std::ptr::from_ref);
        let mut handler = Handler { routine: cancelled, argument: null_mut(), kind: 0, previous: null_mut() };
        // SAFETY: the handler stays where it is until it is popped, and its argument is borrowed as long.
        unsafe { _pthread_cleanup_push(&raw mut handler, cancelled, std::ptr::from_mut(self).cast()) };
        let descriptors = self.descriptors.items();
        let (array, number) = (descriptors.as_mut_ptr(), descriptors.len() as nfds_t);
        let found = call_real!(
            PPOLL as fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
            array,
            number,
            time,
            mask.0
        );
        let result = if found < 0 { Err(crate::errno::get()) } else { Ok(()) };
        // SAFETY: pushed above.
        unsafe { _pthread_cleanup_pop(&raw mut handler, 0) };
        result
    }

    fn all(&mut self) -> impl Iterator<Item = (pollfd, Why)> {
        let descriptors = self.descriptors.items().iter().copied();
        descriptors.zip(self.whys.items().iter().copied())
    }

    /// Looks at the connections that the kernel found readable. Returns true if the daemon has ended one.
    pub(super) fn look_for_ends(&mut self) -> bool {
        let mut any = false;
        for (found, why) in self.all().filter(|(found, _)| found.revents != 0) {
            if let Why::Connection(before) = why
                && let Some(file) = file::same(found.fd, before)
            {
                if found.revents & (POLLHUP | POLLERR) != 0 {
                    file.end();
                }
                any |= file.look_for_end(found.fd);
            }
        }
        any
    }

    /// Calls `report` with what the kernel found for the program's own descriptors.
    pub(super) fn report(&mut self, mut report: impl FnMut(usize, c_short)) {
        for (found, why) in self.all().filter(|(found, _)| found.revents != 0) {
            if let Why::Program(place) = why {
                report(place, found.revents);
            }
        }
    }

    /// Gives back what the thread has slept for, and withdraws its requests for calls.
    pub(super) fn end(&mut self) {
        for (found, why) in self.all() {
            match why {
                Why::Calls { fd, events, file: before, place, is_asked } => {
                    // The number may have become another file's meanwhile.
                    if let Some(file) = file::same(fd, before) {
                        if let Some(place) = place {
                            file.waiters.end(place, found.revents != 0);
                        }
                        if is_asked {
                            sync::withdraw(&file, events);
                        }
                    }
                }
                Why::Changes(id, place) => set::end_wait(id, place, found.revents != 0),
                Why::Program(_) | Why::Connection(_) => {}
            }
        }
        // SAFETY: neither is used again.
        unsafe {
            ManuallyDrop::drop(&mut self.descriptors.heap);
            ManuallyDrop::drop(&mut self.whys.heap);
        }
    }
}

/// What the C macros `pthread_cleanup_push` and `pthread_cleanup_pop` use.
#[repr(C)]
struct Handler {
    routine: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    kind: c_int,
    previous: *mut Handler,
}

unsafe extern "C" {
    fn _pthread_cleanup_push(handler: *mut Handler, routine: unsafe extern "C" fn(*mut c_void), argument: *mut c_void);
    fn _pthread_cleanup_pop(handler: *mut Handler, execute: c_int);
}

/// Ends the sleep of a cancelled thread.
///
/// # Safety
/// The argument is the thread's [`Sleep`].
unsafe extern "C" fn cancelled(argument: *mut c_void) {
    // SAFETY: as the caller says; the thread itself uses it no more.
    unsafe { (*argument.cast::<Sleep>()).end() };
}
