//! A poller's loop: rounds, readings of the clock, and the work after an empty round.
//!
//! With `idle = "sleep"`, and with `idle = "adaptive"` on a processor that it shares, a poller that has called a client yields its core
//! once before it sleeps: a client on the same core then answers first, without a kick (`docs/decisions/sleeping.md`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_runtime::call;
use ringway_runtime::clock;
use ringway_runtime::thread_usage::moment;

use super::cadence::Cadence;
use super::thread::Poller;
use crate::poller_state::add;
use crate::settings::Idle;

/// While the poller is busy, the time between two checks of the descriptors of parked devices.
const DEVICE_POLL_EVERY: Duration = Duration::from_micros(20);
/// How long a poller that ends tries to make its pending calls.
const LAST_CALLS: Duration = Duration::from_millis(100);

/// Times and counts of the loop.
struct Progress {
    /// The last reading of the clock. The time until then is accounted.
    last: Instant,
    /// The last reading after frames were moved or a descriptor woke the poller.
    last_work: Instant,
    last_device_poll: Instant,
    /// Calls that the poller had made when it last yielded its core.
    called: u64,
    /// When the next check of a quarantine poller is due, in nanoseconds.
    next_check: u64,
}

impl Poller {
    /// Serves the ports until the engine ends or another thread relieves this one.
    pub(super) fn run(&mut self) {
        let began = Instant::now();
        let mut progress =
            Progress { last: began, last_work: began, last_device_poll: began, called: 0, next_check: 0 };
        let mut cadence = Cadence::default();
        let in_quarantine = self.is_quarantine_poller();
        while !self.shared.stop.load(Ordering::Relaxed) && !self.shift.is_relieved() {
            let returned = self.waits_for_input && self.state.has_returned(&self.shift);
            if self.shared.topology.version() != self.version || returned {
                self.adopt();
            }
            if in_quarantine && (self.now.nanoseconds >= progress.next_check || self.slots.is_empty()) {
                progress.next_check = self.check_quarantine();
                if self.version == 0 {
                    continue;
                }
            }
            let moved = self.round();
            if moved > 0 {
                add(&self.state.account.passes, 1);
                if !cadence.moved(moved) && !self.has_devices && !self.schedule.is_resting() {
                    continue;
                }
            } else {
                let is_due = cadence.found_nothing();
                (0..cadence.pauses()).for_each(|_| std::hint::spin_loop());
                let is_exact = self.idle == Idle::Sleep || self.has_devices || self.schedule.is_resting();
                if !is_due && !is_exact {
                    continue;
                }
            }
            self.read_clock(&mut progress, cadence.read());
            if moved > 0 {
                if self.has_devices && progress.last - progress.last_device_poll >= DEVICE_POLL_EVERY {
                    progress.last_device_poll = progress.last;
                    self.wait(Some(Duration::ZERO));
                }
                continue;
            }
            self.meter.mark();
            let idle = self.idle_now();
            if !self.schedule.may_sleep(idle, progress.last - progress.last_work)
                || idle == Idle::Sleep && self.has_yielded(&mut progress.called)
            {
                if self.has_devices {
                    self.wait(Some(Duration::ZERO));
                }
            } else if self.prepare_to_sleep() {
                self.sleep(&mut progress, in_quarantine);
            }
        }
        self.end();
    }

    /// What the poller does without work at this time: one that would spin for a while, and is not pinned, sleeps at once on a shared
    /// processor.
    #[inline]
    fn idle_now(&mut self) -> Idle {
        if !matches!(self.idle, Idle::Adaptive(_)) || self.state.core.is_some() {
            return self.idle;
        }
        let is_shared = self.sharing.is_shared(self.now.nanoseconds);
        self.state.account.shared.store(is_shared, Ordering::Relaxed);
        if is_shared { Idle::Sleep } else { self.idle }
    }

    /// Reads the clock. The time since the last reading belongs to the rounds since then; with `busy` these moved
    /// frames.
    #[inline]
    fn read_clock(&mut self, progress: &mut Progress, busy: bool) {
        let now = Instant::now();
        self.state.heartbeat.answer();
        add(&self.shift.turns, 1);
        self.note.turn();
        let account = &self.state.account;
        add(if busy { &account.busy_ns } else { &account.free_ns }, (now - progress.last).as_nanos() as u64);
        progress.last = now;
        self.set_time(now);
        if std::mem::take(&mut self.has_worked) {
            progress.last_work = now;
        }
    }

    /// Sets the poller's time and makes the calls that are due.
    #[inline]
    fn set_time(&mut self, now: Instant) {
        self.now = clock::time(now);
        // While a thread is kept: so that it is known whose memory keeps the next one.
        self.meter.look_at_clock(self.now.nanoseconds, || self.shared.relief.is_keeping());
        if self.meter.examining != self.shift.is_examining.load(Ordering::Relaxed) {
            self.shift.is_examining.store(self.meter.examining, Ordering::Relaxed);
        }
        if self.work.calls.due().is_some_and(|due| due <= self.now.nanoseconds) && !self.shift.is_relieved() {
            self.work.calls.measure(self.meter.examining.then_some(moment));
            if self.work.calls.make(&self.now) {
                self.shared.report_fault();
            }
            if self.meter.examining {
                self.charge_calls();
            }
        }
    }

    /// Yields the core and returns true if the poller has made calls since the last time: a called client may need this
    /// core to answer, and need not wake the poller then.
    fn has_yielded(&self, called: &mut u64) -> bool {
        let before = std::mem::replace(called, call::made());
        let has_called = before != *called;
        if has_called {
            std::thread::yield_now();
        }
        has_called
    }

    /// Sleeps until a descriptor wakes the poller or something is due. Every port is armed.
    fn sleep(&mut self, progress: &mut Progress, in_quarantine: bool) {
        add(&self.state.account.sleeps, 1);
        let now = self.now.nanoseconds;
        let scheduled = self.schedule.next_wake(now, progress.last - progress.last_work);
        let check = in_quarantine.then_some(progress.next_check);
        let due = [self.work.calls.due(), scheduled, check].into_iter().flatten().min();
        self.timer.wake_at(due, now);
        self.lap_before_sleep();
        self.shift.is_asleep.store(true, Ordering::Relaxed);
        let by_timer_only = self.wait(None);
        self.shift.is_asleep.store(false, Ordering::Relaxed);
        self.shared.relief.look();
        self.meter.slept();
        let woken = Instant::now();
        add(&self.state.account.free_ns, (woken - progress.last).as_nanos() as u64);
        progress.last = woken;
        self.set_time(woken);
        if self.poll_silent() || !by_timer_only {
            progress.last_work = woken;
        }
    }

    /// Puts the inputs back and makes the pending calls. A thread that was relieved has others make them: some of these ports may be shut.
    fn end(&mut self) {
        // First: clients can make calls last, and another thread may wait for the inputs.
        for served in self.ports.iter_mut().flatten() {
            if std::mem::take(&mut served.has_input) {
                served.attached.source.put_back(&self.shift);
            }
        }
        if self.shift.is_relieved() {
            if self.work.calls.due().is_some() {
                self.shared.owe_calls();
            }
            return;
        }
        let began = Instant::now();
        // Each call is tried once, even if the thread had no processor for longer than that.
        while self.work.calls.due().is_some() {
            if self.work.calls.make_all(&clock::time(Instant::now())) {
                self.shared.report_fault();
            }
            if began.elapsed() >= LAST_CALLS {
                // Calls may be held for longer.
                self.shared.owe_calls();
                break;
            }
            std::thread::yield_now();
        }
    }
}
