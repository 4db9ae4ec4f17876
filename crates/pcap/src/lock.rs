//! Locks whose holder is known.
//!
//! A signal handler that interrupts the holder would wait for its own thread, and the child of a fork for a thread that it does not
//! have: both would wait for ever. They are told so instead.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

/// The number of the next thread that asks for a lock.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// The first number of a thread of this process. Threads of the processes that it was forked from have lower ones.
static FIRST: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's number; 0: it has none.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

#[inline]
fn own_number() -> u64 {
    let own = OWN.get();
    if own == 0 { take_number() } else { own }
}

#[cold]
fn take_number() -> u64 {
    let own = NEXT.fetch_add(1, Ordering::Relaxed);
    OWN.set(own);
    own
}

extern "C" fn in_child() {
    FIRST.store(NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
    OWN.set(0);
}

/// Prepares for forks. To be called before there is a lock.
pub fn watch_forks() {
    // Threads that come here at the same time all do it, and a child then does the same twice. A lock could stay locked in a child.
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.load(Ordering::Acquire) {
        // SAFETY: the C library forgets the function when this library is unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_DONE.store(true, Ordering::Release);
    }
}

/// How often a thread looks for the end of another one's use before it sleeps.
const LOOKS: u32 = 100;
/// In the word of the holder: threads may sleep for the lock. Numbers of threads do not get there.
const CONTENDED: u64 = 1 << 63;

/// Why a lock cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// This thread has it: the caller is a signal handler that has interrupted it.
    Interrupted,
    /// A thread had it when this process was forked. It is never released here.
    Inherited,
    /// Another thread has it, or has the next turn.
    Held,
}

/// A value for one thread at a time.
///
/// The threads that sleep are woken one by one, in the order in which they began. A thread that finds the lock taken again when it was woken
/// asks for the next turn, and is the next one that has the lock.
#[derive(Debug)]
pub struct Lock<T> {
    /// The number of the thread that has it, or 0; and [`CONTENDED`].
    holder: AtomicU64,
    /// The number of the thread that has the next turn; 0, or a number of the parent process: any thread.
    next: AtomicU64,
    /// Counts of what wakes the thread with the next turn, and the others.
    wakes: [AtomicU32; 2],
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has a reference to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            holder: AtomicU64::new(0),
            next: AtomicU64::new(0),
            wakes: [const { AtomicU32::new(0) }; 2],
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value if no thread has it, and no other thread has the next turn.
    #[inline]
    pub fn try_lock(&self) -> Result<Guard<'_, T>, Busy> {
        let own = own_number();
        let is_free = self.next.load(Ordering::Relaxed) == 0;
        if is_free && self.holder.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(Guard(self));
        }
        self.take(own)
    }

    /// `own`: the thread's number, and whether the release has to wake others.
    #[cold]
    fn take(&self, own: u64) -> Result<Guard<'_, T>, Busy> {
        let (next, holder) = (self.next.load(Ordering::SeqCst), self.holder.load(Ordering::SeqCst));
        if holder & !CONTENDED != 0 || is_of_another(next, own) {
            return Err(busy(own, holder));
        }
        if self.holder.compare_exchange(holder, own | holder, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return Err(Busy::Held);
        }
        if next != 0 {
            let _ = self.next.compare_exchange(next, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        Ok(Guard(self))
    }

    /// Waits for the lock. `left` is told why it cannot be had, and returns how long the wait may last yet, or why it ends: after each wake.
    #[cold]
    pub fn wait<E>(&self, mut left: impl FnMut(Busy) -> Result<Duration, E>) -> Result<Guard<'_, T>, E> {
        let (mut looks, mut contended) = (0, 0);
        loop {
            // A signal handler may have forked.
            let own = own_number();
            // A wake after this one ends the sleep.
            let wakes = self.wakes.each_ref().map(|count| count.load(Ordering::SeqCst));
            let busy = match self.take(own | contended) {
                Ok(guard) => return Ok(guard),
                Err(Busy::Held) if looks < LOOKS => {
                    looks += 1;
                    std::hint::spin_loop();
                    continue;
                }
                Err(busy) => busy,
            };
            match left(busy) {
                Ok(longest) => self.sleep(own, wakes, contended != 0, longest),
                Err(why) => {
                    // It may have been woken for the lock.
                    let _ = self.next.compare_exchange(own, 0, Ordering::SeqCst, Ordering::Relaxed);
                    self.wake_one();
                    return Err(why);
                }
            }
            contended = CONTENDED;
        }
    }

    /// Sleeps until there is a reason to look again. A thread that `has_slept` asks for the next turn.
    fn sleep(&self, own: u64, wakes: [u32; 2], has_slept: bool, longest: Duration) {
        let next = self.next.load(Ordering::SeqCst);
        let asks = has_slept && next != own && !is_of_another(next, own);
        let has_turn =
            next == own || asks && self.next.compare_exchange(next, own, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        // In one order with a release: either this thread sees it, or the holder wakes a thread.
        let holder = self.holder.load(Ordering::SeqCst);
        let is_for_another = holder & !CONTENDED != 0 || !has_turn && is_of_another(next, own);
        let marked = holder | CONTENDED;
        if is_for_another
            && (holder == marked
                || self.holder.compare_exchange(holder, marked, Ordering::SeqCst, Ordering::Relaxed).is_ok())
        {
            let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
            let at = usize::from(!has_turn);
            let _ = futex::wait(&self.wakes[at], futex::Flags::PRIVATE, wakes[at], Some(&longest));
        }
    }

    /// Wakes the thread that has the next turn, or one of the others.
    #[cold]
    fn wake_one(&self) {
        let has_turn = self.next.load(Ordering::SeqCst) >= FIRST.load(Ordering::Relaxed);
        wake(&self.wakes[usize::from(!has_turn)], 1);
    }

    /// Wakes all threads that sleep for the lock: they look again at what they wait for. Async-signal-safe.
    pub fn wake_all(&self) {
        self.wakes.iter().for_each(|count| wake(count, i32::MAX as u32));
    }

    /// Whether threads may sleep for the lock.
    #[cfg(test)]
    pub fn is_contended(&self) -> bool {
        self.holder.load(Ordering::SeqCst) & CONTENDED != 0
    }

    /// The place of the value.
    pub fn as_ptr(&self) -> *mut T {
        self.value.get()
    }
}

fn busy(own: u64, holder: u64) -> Busy {
    match holder & !CONTENDED {
        0 => Busy::Held,
        holder if holder == own & !CONTENDED => Busy::Interrupted,
        holder if holder < FIRST.load(Ordering::Relaxed) => Busy::Inherited,
        _ => Busy::Held,
    }
}

/// Returns true if the next turn is another thread's.
fn is_of_another(next: u64, own: u64) -> bool {
    next != own & !CONTENDED && next >= FIRST.load(Ordering::Relaxed)
}

fn wake(count: &AtomicU32, most: u32) {
    count.fetch_add(1, Ordering::SeqCst);
    let _ = futex::wake(count, futex::Flags::PRIVATE, most);
}

/// A locked value. Also a thread that is cancelled releases it.
#[derive(Debug)]
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is this guard's.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is this guard's, which is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.holder.swap(0, Ordering::SeqCst) & CONTENDED != 0 {
            self.0.wake_one();
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A thread; a test can see whether it sleeps.
    #[derive(Debug)]
    pub struct Sleeper(AtomicU32);

    impl Sleeper {
        pub const fn new() -> Sleeper {
            Sleeper(AtomicU32::new(0))
        }

        /// To be called by the thread.
        pub fn begin(&self) {
            self.0.store(rustix::thread::gettid().as_raw_pid().cast_unsigned(), Ordering::SeqCst);
        }

        pub fn sleeps(&self) -> bool {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.0.load(Ordering::SeqCst)));
            stat.is_ok_and(|stat| stat.contains(") S "))
        }
    }

    /// No time ends such a sleep.
    const FOR_EVER: Duration = Duration::from_secs(1 << 30);

    /// Waits for the lock.
    fn wait_for<T>(lock: &Lock<T>) -> Guard<'_, T> {
        lock.wait(|_| Ok::<_, ()>(FOR_EVER)).unwrap()
    }

    fn has_next_turn<T>(lock: &Lock<T>) -> bool {
        lock.next.load(Ordering::SeqCst) != 0
    }

    #[test]
    fn a_thread_that_takes_a_lock_over_and_over_gives_the_others_their_turns() {
        static LOCK: Lock<u32> = Lock::new(0);
        let mut last = LOCK.try_lock().ok();
        let threads = [(); 3].map(|()| std::thread::spawn(|| *wait_for(&LOCK) += 1));
        ringway_testing::until("all others have had the lock", || {
            let (before, has_turn) = (**last.as_ref().unwrap(), has_next_turn(&LOCK));
            last = None;
            let guard = last.insert(wait_for(&LOCK));
            assert!(!has_turn || **guard > before, "the thread with the next turn has not had the lock");
            **guard == threads.len() as u32
        });
    }

    #[test]
    fn a_release_wakes_one_thread() {
        static LOCK: Lock<()> = Lock::new(());
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        static ENDS: AtomicBool = AtomicBool::new(false);
        static SLEEPERS: [Sleeper; 3] = [const { Sleeper::new() }; 3];
        let left = |_| {
            LOOKS.fetch_add(1, Ordering::SeqCst);
            if ENDS.load(Ordering::SeqCst) { Err(()) } else { Ok(FOR_EVER) }
        };
        let _guard = LOCK.try_lock().unwrap();
        let threads = SLEEPERS.each_ref().map(|sleeper| {
            std::thread::spawn(move || {
                sleeper.begin();
                LOCK.wait(left).map(drop)
            })
        });
        for looks in 3..103 {
            ringway_testing::until("all threads sleep", || {
                LOOKS.load(Ordering::SeqCst) >= looks && SLEEPERS.iter().all(Sleeper::sleeps)
            });
            assert_eq!(LOOKS.load(Ordering::SeqCst), looks);
            // As a release after which another thread takes the lock at once.
            LOCK.wake_one();
        }
        // A thread whose wait ends for another reason passes its wake on.
        ENDS.store(true, Ordering::SeqCst);
        LOCK.wake_one();
        ringway_testing::until("all waits have ended", || threads.iter().all(|thread| thread.is_finished()));
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [Err(()); 3]);
    }

    #[test]
    fn sleepers_leave_nothing_behind_and_a_turn_is_its_threads_alone() {
        static LOCK: Lock<()> = Lock::new(());
        static SLEEPER: Sleeper = Sleeper::new();
        let guard = LOCK.try_lock().unwrap();
        let other = std::thread::spawn(|| {
            SLEEPER.begin();
            drop(wait_for(&LOCK));
        });
        ringway_testing::until("the other thread sleeps", || LOCK.is_contended() && SLEEPER.sleeps());
        LOCK.wake_one();
        ringway_testing::until("it has the next turn", || has_next_turn(&LOCK) && SLEEPER.sleeps());
        // As a release of whose wake the other thread does not know yet.
        LOCK.holder.store(0, Ordering::SeqCst);
        std::mem::forget(guard);
        let mut looks = 0;
        let ended = LOCK.wait(|busy| {
            looks += 1;
            if looks < 4 { Ok(Duration::from_millis(1)) } else { Err(busy) }
        });
        assert_eq!(ended.err(), Some(Busy::Held));
        ringway_testing::until("the other thread has had the lock", || other.is_finished());
        assert_eq!((LOCK.holder.load(Ordering::SeqCst), has_next_turn(&LOCK)), (0, false));
    }

    #[test]
    fn who_would_wait_for_itself_is_told() {
        static LOCK: Lock<u32> = Lock::new(1);
        let other = || std::thread::spawn(|| LOCK.try_lock().map(|mut value| *value += 1)).join().unwrap();
        let guard = LOCK.try_lock().unwrap();
        assert_eq!(LOCK.try_lock().err(), Some(Busy::Interrupted));
        assert_eq!(other(), Err(Busy::Held));
        drop(guard);
        assert_eq!((other(), *LOCK.try_lock().unwrap()), (Ok(()), 2));
    }

    #[test]
    fn a_child_is_told_of_what_was_locked_and_has_other_locks_as_usual() {
        static LOCK: Lock<u32> = Lock::new(1);
        static TURN: Lock<()> = Lock::new(());
        watch_forks();
        let _guard = LOCK.try_lock().unwrap();
        // As of a thread that waited.
        TURN.next.store(own_number(), Ordering::Relaxed);
        let is_as_expected = || {
            let has_turn = TURN.try_lock().is_ok() && !has_next_turn(&TURN);
            let of_child = Lock::new(());
            let held = of_child.try_lock();
            let interrupted = of_child.try_lock().err();
            let busy = (LOCK.try_lock().err(), interrupted);
            has_turn && held.is_ok() && busy == (Some(Busy::Inherited), Some(Busy::Interrupted))
        };
        // SAFETY: the child allocates nothing, and ends by `_exit`.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit((!is_as_expected()).into());
            }
            child
        };
        let mut status = -1;
        // SAFETY: the child's number, and a place for its status.
        assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
    }

    #[test]
    fn every_thread_that_sleeps_for_a_lock_gets_it() {
        const TIMES: u32 = 20_000;
        static LOCK: Lock<u32> = Lock::new(0);
        let count = || {
            for turn in 0..TIMES {
                let mut value = wait_for(&LOCK);
                *value += 1;
                // The others find it locked. On a busy processor each of these takes as long as the turns of all other threads.
                if turn % 32 == 0 {
                    std::thread::yield_now();
                }
            }
        };
        let threads = [(); 4].map(|()| std::thread::spawn(count));
        ringway_testing::until("all threads have had the lock", || threads.iter().all(|thread| thread.is_finished()));
        assert_eq!(*LOCK.try_lock().unwrap(), 4 * TIMES);
    }
}
