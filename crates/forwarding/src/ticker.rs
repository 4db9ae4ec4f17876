//! Ends calls that take too long.
//!
//! While programs are called, a thread advances the epoch of wasmtime's engine every [`TICK`]. Compiled code looks at the epoch at each function
//! and each loop; when it has advanced, the code calls back ([`CallClock::tick`]), and the call ends if it has used up its processor time.
//! The clock is read at these ticks only, not once a batch: a call that ends between two ticks costs nothing.
//!
//! One instruction or host function can take longer than a tick: the code looks at the epoch after it, or the call ends before. So the ticks
//! of each call are counted. After a call with [`LONG`] of them, whose begin was not measured, the instance's calls are measured for a while
//! ([`CallClock::end`]).
//!
//! Processor time counts, not time: a poller that the kernel suspends within a call is not at fault.
//!
//! The thread sleeps while no program is called ([`Awake`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use wasmtime::{Engine, UpdateDeadline};

use crate::awake::Awake;
use crate::clock::{monotonic_ns, thread_time};
use crate::fault::{Fault, FaultKind};
use crate::limits::{CALL_TIME, SHORT_CALL_TIME, SHORT_FOR};

/// Time between two ticks.
const TICK: Duration = Duration::from_micros(250);
/// Time between two ticks while calls are bounded to a shorter time.
const SHORT_TICK: Duration = Duration::from_micros(25);
/// Ticks after which a call may have taken too long: as many as fit into the time of a call.
const LONG: u64 = 4;
/// Time without a call after which the thread sleeps.
const QUIET: Duration = Duration::from_millis(10);

/// What callers and the thread share.
#[derive(Debug, Default)]
struct Flags {
    awake: Awake,
    /// Ticks so far.
    ticks: AtomicU64,
    /// Until when calls are bounded to a shorter time, in nanoseconds.
    short_until: AtomicU64,
}

/// The thread that advances the epoch.
#[derive(Debug)]
pub(crate) struct Ticker {
    flags: Arc<Flags>,
    thread: Option<JoinHandle<()>>,
    waker: Thread,
}

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Ticker> {
        let flags = Arc::<Flags>::default();
        let (engine, of_thread) = (engine.clone(), Arc::clone(&flags));
        let thread =
            std::thread::Builder::new().name("program-ticks".to_owned()).spawn(move || run(&engine, &of_thread))?;
        let waker = thread.thread().clone();
        Ok(Ticker { flags, thread: Some(thread), waker })
    }

    /// To be called at the begin of each call of a program, after its deadline was set. Returns the ticks so far.
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        if self.flags.awake.call() {
            self.waker.unpark();
        }
        self.ticks()
    }

    /// The ticks so far.
    #[inline]
    pub(crate) fn ticks(&self) -> u64 {
        self.flags.ticks.load(Ordering::Relaxed)
    }

    /// Keeps the ticker awake until [`Ticker::leave`].
    #[cold]
    fn stay(&self) {
        if self.flags.awake.stay() {
            self.waker.unpark();
        }
    }

    #[cold]
    fn leave(&self) {
        self.flags.awake.leave();
    }

    /// Bounds calls to a shorter time for a while.
    #[cold]
    pub(crate) fn shorten(&self) {
        self.flags.short_until.store(after_while(), Ordering::Relaxed);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.flags.awake.end();
        self.waker.unpark();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(engine: &Engine, flags: &Flags) {
    // Without this the kernel may wake the thread 50 us late.
    let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
    let mut quiet = Duration::ZERO;
    while !flags.awake.has_ended() {
        let short_until = flags.short_until.load(Ordering::Relaxed);
        let is_short = short_until > 0 && monotonic_ns() < short_until;
        let tick = if is_short { SHORT_TICK } else { TICK };
        std::thread::sleep(tick);
        engine.increment_epoch();
        flags.ticks.fetch_add(1, Ordering::Relaxed);
        if flags.awake.look() {
            quiet = Duration::ZERO;
            continue;
        }
        quiet += tick;
        if quiet < QUIET {
            continue;
        }
        if flags.awake.may_park() {
            std::thread::park();
        }
        flags.awake.rise();
        quiet = Duration::ZERO;
    }
}

/// The end of the time for which a slow instance is bounded and measured.
fn after_while() -> u64 {
    monotonic_ns().saturating_add(u64::try_from(SHORT_FOR.as_nanos()).unwrap_or(u64::MAX))
}

fn too_long(most: Duration) -> String {
    format!("a call took more than {most:?} of processor time")
}

/// The processor time of one call.
#[derive(Debug)]
pub(crate) struct CallClock {
    ticker: Arc<Ticker>,
    /// The call keeps the ticker awake.
    stays: bool,
    most: Duration,
    /// The ticks at the begin of the call.
    begun: u64,
    /// The thread's processor time at the first tick of the call; at its begin, if calls are measured.
    first: Option<Duration>,
    /// Until when calls are bounded to a shorter time, in nanoseconds; 0: not.
    short_until: u64,
    /// Until when calls are measured, in nanoseconds; 0: not.
    measured_until: u64,
}

impl CallClock {
    pub(crate) fn new(ticker: Arc<Ticker>) -> CallClock {
        CallClock { ticker, stays: false, most: CALL_TIME, begun: 0, first: None, short_until: 0, measured_until: 0 }
    }

    /// Begins a call that may take this long. To be called when its deadline is set.
    #[inline]
    pub(crate) fn begin(&mut self, most: Duration) {
        self.stop();
        (self.most, self.begun, self.first) = (most, self.ticker.begin(), None);
        if self.measured_until > 0 {
            self.measure();
        }
    }

    #[cold]
    fn measure(&mut self) {
        if monotonic_ns() < self.measured_until {
            self.first = Some(thread_time());
        } else {
            self.measured_until = 0;
        }
    }

    /// Ends a call.
    ///
    /// # Errors
    /// It took too long, in an instruction or host function that no tick ends.
    #[inline]
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        self.stop();
        if self.ticker.ticks().wrapping_sub(self.begun) < LONG { Ok(()) } else { self.end_of_long() }
    }

    /// Ends a call, however long it took.
    #[inline]
    pub(crate) fn stop(&mut self) {
        if std::mem::take(&mut self.stays) {
            self.ticker.leave();
        }
    }

    #[cold]
    fn end_of_long(&mut self) -> Result<(), Fault> {
        match self.first {
            Some(first) if thread_time().saturating_sub(first) > self.most => {
                Err(Fault::new(FaultKind::Time, too_long(self.most)))
            }
            Some(_) => Ok(()),
            // The kernel may have suspended the thread.
            None => {
                self.measured_until = after_while();
                Ok(())
            }
        }
    }

    /// The longest time of a usual call.
    #[inline]
    pub(crate) fn usual(&mut self) -> Duration {
        if self.short_until == 0 { CALL_TIME } else { self.usual_of_slow() }
    }

    #[cold]
    fn usual_of_slow(&mut self) -> Duration {
        if monotonic_ns() >= self.short_until {
            self.short_until = 0;
        }
        if self.short_until == 0 { CALL_TIME } else { SHORT_CALL_TIME }
    }

    /// Bounds calls to a shorter time for a while.
    pub(crate) fn shorten(&mut self) {
        self.short_until = after_while();
        self.ticker.shorten();
    }

    /// Whether calls are bounded to a shorter time.
    pub(crate) fn short_until(&self) -> u64 {
        self.short_until
    }

    /// Takes over the bound of an instance that this one replaces.
    pub(crate) fn inherit(&mut self, short_until: u64) {
        (self.short_until, self.measured_until) = (short_until, short_until);
    }

    /// A tick during the call. The call began at most one tick before its first one, so that a call is ended after three quarters of its time
    /// at the earliest, and after all of it at the latest.
    #[cold]
    pub(crate) fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        // The next deadline is set after this.
        if !std::mem::replace(&mut self.stays, true) {
            self.ticker.stay();
        }
        let now = thread_time();
        let first = *self.first.get_or_insert(now);
        if now.saturating_sub(first) >= self.most * 6 / 10 {
            return Fault::end(FaultKind::Time, too_long(self.most));
        }
        Ok(UpdateDeadline::Continue(1))
    }
}

impl Drop for CallClock {
    fn drop(&mut self) {
        self.stop();
    }
}
