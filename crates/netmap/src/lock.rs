//! A lock for short sections, which waits without libc and survives forks, signal handlers, jumps out of them, and the death of its holder.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, madvise};
use rustix::thread::{Timespec, gettid, nanosleep};

/// Turns of a wait before the thread sleeps: longer than a ring's synchronisation takes.
const TURNS: u32 = 200;
/// Time between two looks of a thread that sleeps. It sleeps, so that a holder of lower priority on the same processor can go on.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };
/// Most of a wait that counts for one look: a process that was stopped together with the holder lets it go on first.
const LONGEST_LOOK: i64 = 10_000_000;
const SECOND: i64 = 1_000_000_000;

/// Whose a lock is, and the times after which a thread takes it over, in nanoseconds.
#[derive(Clone, Copy)]
struct Patience {
    /// The lock is in memory that processes share.
    is_shared: bool,
    /// Its own, if its stack does not tell whether it still works with it. No section lasts so long.
    own: i64,
    /// Another thread's.
    others: i64,
}

/// For a lock in shared memory: its holder may be stopped, or no thread at all.
const SHARED: Patience = Patience { is_shared: true, own: SECOND, others: SECOND };
/// For a lock of this process. It is held over a wait for the lock of a ring, and no call holds it for so long.
const LOCAL: Patience = Patience { is_shared: false, own: 3 * SECOND, others: 30 * SECOND };
/// For a lock that is held over requests to the daemon, which have a time limit, or over a wait for another lock of this process.
const OUTER: Patience = Patience { is_shared: false, own: 60 * SECOND, others: 60 * SECOND };

/// The lock: its holder, or 0. Nothing is held over a call that can wait, but for requests to the daemon, which have a time limit, and
/// for other locks.
///
/// | bits | hold |
/// |---|---|
/// | 0 to 21 | the number of the thread |
/// | 22 to 34 | the lower bits of the number of its PID namespace: threads of different ones may have equal numbers |
/// | 35 | the process does not know the namespace: the bits below are random, and nobody asks the kernel for the thread |
/// | 36 to 63 | the place of the section on the thread's stack, in units of 16 bytes, modulo 4 GiB |
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lock(AtomicU64);

const THREAD_BITS: u32 = 22;
const PLACE_SHIFT: u32 = 36;
const NUMBER: u64 = (1 << THREAD_BITS) - 1;
const UNKNOWN: u64 = 1 << (PLACE_SHIFT - 1);
/// Thread and namespace.
const WHO: u64 = (1 << PLACE_SHIFT) - 1;

/// A value and its lock.
pub(crate) struct Guarded<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by the holder of the lock only.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Works with the value. `None`: this is a signal handler, and its own thread does so.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _held = self.lock.take()?;
        // SAFETY: the lock is held.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    /// As [`Lock::reset`].
    pub(crate) fn reset(&self) {
        self.lock.reset();
    }
}

/// Holds the lock.
pub(crate) struct Held<'a> {
    lock: &'a Lock,
    holder: u64,
    is_shared: bool,
    is_taken_over: bool,
}

impl Held<'_> {
    /// Returns true if the holder before has not reached the end of its section.
    #[inline]
    pub(crate) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }
}

/// A lock that this thread found itself to hold: its address, its word, the time of the first look, and after how long the thread takes it
/// over, in nanoseconds.
#[derive(Clone, Copy)]
struct Met {
    lock: usize,
    holder: u64,
    since: i64,
    after: i64,
}

const NONE_MET: Met = Met { lock: 0, holder: 0, since: 0, after: 0 };

/// What a thread knows about itself.
struct Own {
    /// The process's epoch when the thread looked itself up.
    epoch: Cell<u64>,
    /// Thread and namespace as in a lock.
    who: Cell<u64>,
    /// The same of the thread that has forked, in the child.
    parent: Cell<u64>,
    met: Cell<Met>,
}

/// What a process knows about itself. The kernel empties it in the child of a fork, also of one that libc does not make, where the only
/// thread has another number than the thread that forked, and may be in another namespace. It has pages of its own, however large they are.
#[repr(align(65536))]
struct Process {
    /// 0: nothing is known. No ancestor of the process had this number.
    epoch: AtomicU64,
    /// The PID namespace as in a lock.
    namespace: AtomicU64,
}

static PROCESS: Process = Process { epoch: AtomicU64::new(0), namespace: AtomicU64::new(0) };
/// The last epoch of the process, or of an ancestor.
static EPOCHS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: Own = const {
        Own { epoch: Cell::new(u64::MAX), who: Cell::new(0), parent: Cell::new(0), met: Cell::new(NONE_MET) }
    };
}

/// Returns this thread as in a lock.
#[inline]
fn own() -> u64 {
    let epoch = PROCESS.epoch.load(Ordering::Relaxed);
    OWN.with(|own| if own.epoch.get() == epoch { own.who.get() } else { look_up_own() })
}

/// Asks the kernel for this thread's number, and once in a process for its namespace.
#[cold]
pub(crate) fn look_up_own() -> u64 {
    let epoch = match PROCESS.epoch.load(Ordering::Acquire) {
        0 => look_up_process(),
        epoch => epoch,
    };
    let number = u64::from(gettid().as_raw_pid().cast_unsigned()) & NUMBER;
    let who = number | PROCESS.namespace.load(Ordering::Relaxed);
    OWN.with(|own| {
        own.who.set(who);
        own.epoch.set(epoch);
    });
    who
}

/// Returns a number that this process has, and none of its ancestors.
pub(crate) fn process() -> u64 {
    own();
    PROCESS.epoch.load(Ordering::Relaxed)
}

/// Begins the life of the child of a fork. Old kernels have left it what the parent knows about itself.
pub(crate) fn begin_child() {
    PROCESS.epoch.store(0, Ordering::Relaxed);
    OWN.with(|own| own.parent.set(own.who.get()));
    look_up_own();
}

/// Returns the process's epoch.
fn look_up_process() -> u64 {
    // SAFETY: only `PROCESS` is in its pages.
    let _ = unsafe {
        madvise(std::ptr::from_ref(&PROCESS).cast_mut().cast(), size_of::<Process>(), Advice::LinuxWipeOnFork)
    };
    PROCESS.namespace.store(namespace(), Ordering::Relaxed);
    let epoch = EPOCHS.fetch_add(1, Ordering::Relaxed) + 1;
    // Another thread may have done the same.
    match PROCESS.epoch.compare_exchange(0, epoch, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => epoch,
        Err(other) => other,
    }
}

/// Returns this process's PID namespace as in a lock. It cannot be known without `/proc`.
fn namespace() -> u64 {
    let known = rustix::fs::stat(c"/proc/self/ns/pid").map(|stat| stat.st_ino << THREAD_BITS & (UNKNOWN - 1));
    known.unwrap_or_else(|_| {
        let mut bytes = [0; 8];
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        UNKNOWN | u64::from_ne_bytes(bytes) << THREAD_BITS & (UNKNOWN - 1)
    })
}

/// Returns the place on this thread's stack as in a lock.
#[inline(always)]
fn place() -> u64 {
    let here = MaybeUninit::<u64>::uninit();
    (here.as_ptr().addr() as u64 >> 4) << PLACE_SHIFT
}

/// Usual size of a stack, in units of places. Places that are farther apart may be of two stacks of a thread.
const STACK: u64 = (8 << 20) >> 4;

/// Returns true if the thread is at the section's place of the stack, or above it: the function with the section has been left.
const fn is_left_behind(holder: u64, here: u64) -> bool {
    (here >> PLACE_SHIFT << PLACE_SHIFT).wrapping_sub(holder >> PLACE_SHIFT << PLACE_SHIFT) >> PLACE_SHIFT < STACK
}

/// Returns false if there is no such thread in this thread's namespace.
fn is_alive(holder: u64, own: u64) -> bool {
    if own & UNKNOWN != 0 || (holder ^ own) & WHO >> THREAD_BITS << THREAD_BITS != 0 {
        return true;
    }
    let thread = holder & NUMBER;
    // SAFETY: signal 0 is none: the kernel only looks for the thread.
    crate::errno::kept(
        || unsafe { libc::syscall(libc::SYS_tkill, thread, 0) } == 0 || crate::errno::get() != libc::ESRCH,
    )
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The lock in a word of shared memory, which any program of the family can write.
    pub(crate) const fn in_word(word: &AtomicU64) -> &Self {
        // SAFETY: a lock is such a word.
        unsafe { &*std::ptr::from_ref(word).cast::<Self>() }
    }

    #[inline]
    fn try_replace(&self, holder: u64, own: u64) -> bool {
        self.0.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock. `None`: this thread works with it itself. That happens in a signal handler, which has to do without.
    #[inline]
    pub(crate) fn take(&self) -> Option<Held<'_>> {
        self.take_within(LOCAL)
    }

    /// As [`Lock::take`], for a lock that is held over requests to the daemon, or while another one is waited for.
    pub(crate) fn take_outer(&self) -> Option<Held<'_>> {
        self.take_within(OUTER)
    }

    /// As [`Lock::take`], for a lock that processes share. Takes it from a holder that has kept it for a second.
    #[inline]
    pub(crate) fn take_shared(&self) -> Option<Held<'_>> {
        self.take_within(SHARED)
    }

    #[inline(always)]
    fn take_within(&self, patience: Patience) -> Option<Held<'_>> {
        let holder = own() | place();
        let is_taken_over = !self.try_replace(0, holder) && self.wait(holder, patience)?;
        // What a handler has met in an earlier section is over.
        OWN.with(|own| {
            if own.met.get().lock == self.address() {
                own.met.set(NONE_MET);
            }
        });
        Some(Held { lock: self, holder, is_shared: patience.is_shared, is_taken_over })
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Waits for the lock, and takes it. Takes it over from a thread that has ended or left without releasing it, and from any that has
    /// kept it for too long. Returns whether it is taken over. `None`: this thread works with it.
    #[cold]
    fn wait(&self, own: u64, patience: Patience) -> Option<bool> {
        let (mut turns, mut last, mut waited, mut before) = (0u32, 0, 0, 0);
        loop {
            // A signal handler may have forked: this is another thread then.
            let own = self::own() | own & !WHO;
            let holder = self.0.load(Ordering::Relaxed);
            if (holder ^ own) & WHO == 0 {
                if !self.has_left(holder, own, patience.own) {
                    return None;
                }
                if self.try_replace(holder, own) {
                    return Some(true);
                }
            }
            if holder == 0 && self.try_replace(0, own) {
                return Some(false);
            }
            if holder != std::mem::replace(&mut last, holder) {
                (turns, waited) = (0, 0);
            }
            turns = turns.saturating_add(1);
            if turns < TURNS {
                std::hint::spin_loop();
                continue;
            }
            let now = crate::clock::monotonic();
            if turns > TURNS {
                waited += (now - before).min(LONGEST_LOOK);
            }
            before = now;
            if holder != 0 && (waited >= patience.others || !is_alive(holder, own)) {
                // If another thread has done the same, it holds the lock now.
                if self.try_replace(holder, own) {
                    return Some(true);
                }
            } else {
                let _ = crate::errno::kept(|| nanosleep(&LOOK_EVERY));
            }
        }
    }

    /// Returns true if this thread, which holds the lock, has left the section without its end: a signal handler has jumped out of it
    /// (`siglongjmp`).
    ///
    /// A handler within the section runs below it on the stack, or on the alternate stack. A thread that has left the section and is at a
    /// deeper place of its stack, or in a later handler, looks the same: it takes the lock after `own_after` in which it could not have it.
    fn has_left(&self, holder: u64, own: u64, own_after: i64) -> bool {
        let mut other = MaybeUninit::<libc::stack_t>::zeroed();
        // SAFETY: the call writes the alternate stack, and changes nothing.
        let (result, other) = unsafe {
            let result = crate::errno::kept(|| libc::sigaltstack(std::ptr::null(), other.as_mut_ptr()));
            (result, other.assume_init())
        };
        let has_other = result == 0 && other.ss_flags & libc::SS_DISABLE == 0;
        let is_there = has_other && other.ss_flags & libc::SS_ONSTACK != 0;
        let start = (other.ss_sp.addr() as u64 >> 4) << PLACE_SHIFT;
        let was_there = has_other && (holder.wrapping_sub(start)) >> PLACE_SHIFT <= other.ss_size as u64 >> 4;
        match (was_there, is_there) {
            (true, false) => true,
            (false, true) => self.is_met_for(own_after, holder),
            _ => is_left_behind(holder, own) || self.is_met_for(own_after, holder),
        }
    }

    /// Notes that this thread has met its own lock. Returns true if it has done so for this time, and could not take the lock meanwhile.
    fn is_met_for(&self, time: i64, holder: u64) -> bool {
        let now = crate::clock::monotonic();
        let met = OWN.with(|own| own.met.get());
        if (met.lock, met.holder) == (self.address(), holder) {
            return now - met.since >= time;
        }
        // One lock at a time: another one that is met over and over is taken first.
        if met.lock == 0 || now - met.since > 2 * met.after {
            OWN.with(|own| own.met.set(Met { lock: self.address(), holder, since: now, after: time }));
        }
        false
    }

    /// Frees the lock in the child of a fork, where other threads do not exist. If the thread that has forked works with it, a signal handler
    /// has forked: the child's thread works with it on.
    pub(crate) fn reset(&self) {
        let (holder, parent) = (self.0.load(Ordering::Relaxed), OWN.with(|own| own.parent.get()));
        // A free one costs the child no copy of its page.
        if holder != 0 {
            let is_own = holder & WHO == parent;
            self.0.store(if is_own { own() | holder & !WHO } else { 0 }, Ordering::Relaxed);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let release = |holder| self.lock.0.compare_exchange(holder, 0, Ordering::Release, Ordering::Relaxed).is_ok();
        // It may have been taken from this thread. In the child of a fork within the section, a lock in shared memory is the parent's. One of
        // this process is a copy, in which a fork that libc does not know has left the parent's number.
        let _ = release(own() | self.holder & !WHO) || !self.is_shared && release(self.holder);
    }
}
