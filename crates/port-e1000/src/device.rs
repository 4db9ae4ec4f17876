//! The device of one port: registers, which the port's own thread works on, and two rings, which pollers work on.
//!
//! There are three locks, for the registers (`access`), for each of the two sides with its ring, which a poller holds for a
//! batch, and for the interrupts. They may be taken in this order only: registers, a side (or the input's and then the
//! output's), interrupts.
//!
//! - A register access changes settings and never looks at a descriptor (thesis 4.4.1). A tail write is a store, and one
//!   eventfd write if the poller sleeps.
//! - A ring is looked for when the ring is on and has descriptors, not when the driver turns the ring on: Linux's e1000e
//!   turns receiving on before it says where the ring is, and self-tests write nonsense to these registers with receiving on.
//! - A broken ring rests until the driver turns the ring on anew. Everything else goes on.
//! - Without bus mastering (PCI command register) no frame moves, and nothing of a guest's memory is touched. A kernel that
//!   starts another kernel by kexec takes bus mastering away before it gives the memory on.
//! - Nothing that a guest did outlasts its front end, not even what the guest wrote into the EEPROM.
//! - The 82574L's two transmit rings are served in turn (`InputState::turn`), each with causes of its own. Linux uses one
//!   ring; FreeBSD uses both where it has two processors.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use ringway_memory::Quota;
use ringway_port::front_end::State;
use ringway_runtime::nanoseconds;
use ringway_switch::{CallResult, FrameRateMeter, Moderation, Totals, Tuner};
use rustix::event::{EventfdFlags, eventfd};

use super::access_counters::AccessCounters;
use super::chip::Chip;
use super::data_path::{Backlog, InputState, Noted, OutputState, Ring};
use super::interrupt::{Causes, Raise, Signalling};
use super::kept::State as KeptState;
use super::ring_page::RingPage;
use super::rings::{PacketBuffer, RingFault};
use super::settings::{Model, Settings, Status};
use crate::vfio_user::{Interrupts, Mode, Observer};

/// Shortest time in nanoseconds between two reports of ring faults: a guest can cause faults at a high rate.
const REPORT_EVERY: u64 = 1_000_000_000;

/// Polling for descriptors that the guest gives without a message, while frames wait for them: the first poll is due
/// after `FIRST_POLL` nanoseconds. The interval doubles after each poll without result, at most `MOST_DOUBLINGS` times.
const FIRST_POLL: u64 = 100_000;
const MOST_DOUBLINGS: u32 = 5;

/// Interrupt causes, and the state of their delivery.
#[derive(Debug)]
pub(super) struct InterruptState {
    pub(super) causes: Causes,
    /// The time for which a poller has scheduled a call that will check again. Later calls are not needed.
    scheduled: Option<u64>,
    /// Interrupts raised since the statistics registers were read (`raised`), and before that (`raised_before`).
    raised: u64,
    raised_before: u64,
    moderation: Moderation,
    pace: FrameRateMeter,
    tuner: Tuner,
    /// The interval that `tuner` found, in nanoseconds.
    auto_interval: u64,
    /// Number of polls for descriptors without result since the last with one.
    pub(super) idle_polls: u32,
    /// Frames sent and received, from which `pace` computes a rate.
    pub(super) frames: u64,
}

/// The device: see the description of the module.
pub(super) struct Device {
    pub(super) model: Model,
    /// The settings that a guest has seen, for comparison.
    pub(super) identity: [u8; 9],
    /// Whether the front end may map the ring pages.
    pub(super) mapped: bool,
    /// Whether the guest may use a communication status block.
    pub(super) csb: bool,
    pub(super) chip: Mutex<Chip>,
    pub(super) access_counters: AccessCounters,
    /// Limits and use of the memory that front ends may share.
    pub(super) quota: Arc<Quota>,
    pub(super) input: Arc<Mutex<InputState>>,
    pub(super) output: Mutex<OutputState>,
    interrupting: Mutex<InterruptState>,
    interrupts: Arc<Interrupts>,
    observer: Arc<dyn Observer>,
    reported: AtomicU64,
    /// True while a poller wants a kick for frames.
    armed: AtomicBool,
    /// True while a poller wants a kick for interrupts to be checked.
    armed_for_events: AtomicBool,
    /// True while frames wait for descriptors.
    pub(super) waiting: AtomicBool,
    /// True if a poller has to check the interrupts.
    news: AtomicBool,
    wake: OwnedFd,
}

impl InterruptState {
    pub(super) fn all_raised(&self) -> u64 {
        self.raised_before + self.raised
    }

    /// Begins with the count of a predecessor of this process.
    pub(super) fn go_on_from(&mut self, raised: u64) {
        (self.raised, self.raised_before) = (0, raised);
    }

    /// Returns the number of interrupts since the last call.
    pub(super) fn take_raised(&mut self) -> u64 {
        let raised = std::mem::take(&mut self.raised);
        self.raised_before += raised;
        raised
    }
}

impl Device {
    pub(super) fn new(settings: &Settings, observer: Arc<dyn Observer>) -> io::Result<Device> {
        let (chip, state) = (Chip::new(settings, RingPage::new()?), Arc::new(KeptState::new(false)?));
        let mut causes = Causes::new(chip.known_causes());
        causes.set_completion_delay(nanoseconds_of(settings.completion_delay));
        let interrupting = InterruptState {
            causes,
            scheduled: None,
            raised: 0,
            raised_before: 0,
            moderation: Moderation::default(),
            pace: FrameRateMeter::default(),
            tuner: Tuner::default(),
            auto_interval: 0,
            idle_polls: 0,
            frames: 0,
        };
        Ok(Device {
            model: settings.model,
            identity: identity(settings),
            mapped: settings.mapped && settings.model == Model::E1000e,
            csb: settings.csb && settings.model == Model::E1000,
            access_counters: AccessCounters::default(),
            quota: Quota::of_port(settings.memory),
            input: Arc::new(Mutex::new(chip.new_input(&state))),
            output: Mutex::new(chip.new_output(&state, PacketBuffer::new(settings.receive_buffer)?)),
            chip: Mutex::new(chip),
            interrupting: Mutex::new(interrupting),
            interrupts: Arc::new(Interrupts::default()),
            observer,
            reported: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            armed_for_events: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            news: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn interrupts(&self) -> &Arc<Interrupts> {
        &self.interrupts
    }

    /// Returns the descriptor that a poller waits for.
    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        self.wake.try_clone()
    }

    /// Wakes the poller if it has asked for a kick. Call after publishing the reason.
    pub(super) fn kick(&self) {
        fence(Ordering::SeqCst);
        if take(&self.armed) {
            self.wake();
        }
    }

    fn wake(&self) {
        // The eventfd belongs to this process alone. If its counter is full, it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Enables kicks for frames. The caller checks for frames once more afterwards.
    pub(super) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Returns true while a poller wants a kick for frames.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    pub(super) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
        self.armed_for_events.store(false, Ordering::Relaxed);
    }

    /// Enables kicks for interrupts to be checked. Returns true if there are some already.
    pub(super) fn arm_for_events(&self) -> bool {
        self.armed_for_events.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_event()
    }

    /// Has the poller that is serving the port check the interrupts.
    pub(super) fn set_event(&self) {
        self.news.store(true, Ordering::Release);
    }

    /// Has a poller check the interrupts, and wakes it if it has asked for a kick.
    pub(super) fn raise_event(&self) {
        self.set_event();
        fence(Ordering::SeqCst);
        if take(&self.armed) | take(&self.armed_for_events) {
            self.wake();
        }
    }

    pub(super) fn has_event(&self) -> bool {
        self.news.load(Ordering::Relaxed)
    }

    pub(super) fn take_event(&self) -> bool {
        self.has_event() && self.news.swap(false, Ordering::Acquire)
    }

    /// Locks the interrupt state.
    #[inline]
    pub(super) fn interrupting(&self) -> MutexGuard<'_, InterruptState> {
        let mut interrupting = self.interrupting.lock();
        let signalling = match self.interrupts.mode() {
            Mode::MsiX => Signalling::PerVector,
            Mode::Msi if self.csb => Signalling::Clearing,
            Mode::None | Mode::Intx | Mode::Msi => Signalling::Single,
        };
        interrupting.causes.set_signalling(signalling);
        interrupting
    }

    /// Raises interrupts after registers have changed. Has a poller raise those that are due later.
    pub(super) fn settle(&self) {
        if let CallResult::Later { .. } = self.ring(None, false) {
            self.raise_event();
        }
    }

    /// Raises the interrupts that are due. `fired` is the time for which a scheduled call has come. `lists` tells that
    /// the caller schedules a call for the returned time.
    pub(super) fn ring(&self, fired: Option<u64>, lists: bool) -> CallResult {
        let polled = lists && self.is_waiting() && self.drain() == Backlog::Polled;
        let mut interrupting = self.interrupting();
        let InterruptState {
            causes,
            scheduled,
            raised,
            moderation,
            pace,
            tuner,
            auto_interval,
            idle_polls,
            frames,
            ..
        } = &mut *interrupting;
        if fired.is_some() && *scheduled == fired {
            *scheduled = None;
        }
        if causes.is_quiet() && !polled {
            return CallResult::Unwanted;
        }
        let now = nanoseconds();
        causes.set_min_interval(match moderation {
            Moderation::Auto => *auto_interval,
            Moderation::Fixed { interval, above } => {
                let interval = nanoseconds_of(*interval);
                let applies = above.is_none_or(|above| pace.is_above(above, *frames, now, interval));
                if applies { interval } else { 0 }
            }
        });
        let held_until = self.interrupts.account().held_until();
        let mut raise =
            if now < held_until { Raise { vectors: 0, next: Some(held_until) } } else { causes.settle(now) };
        if raise.vectors != 0 {
            // Bytes are not known here.
            *auto_interval = tuner.note_call(now, Totals { frames: *frames, bytes: *frames });
        }
        if polled {
            let look = now + (FIRST_POLL << (*idle_polls).min(MOST_DOUBLINGS));
            *idle_polls += u32::from(fired.is_some());
            raise.next = Some(raise.next.map_or(look, |next| next.min(look)));
        }
        // If a call is already scheduled for an earlier time that has not come yet, that call will check again.
        let later = raise
            .next
            .filter(|next| scheduled.filter(|scheduled| *scheduled > now).is_none_or(|scheduled| *next < scheduled));
        if lists && later.is_some() {
            *scheduled = later;
        }
        *raised += u64::from(raise.vectors.count_ones());
        let called = raise.vectors != 0;
        if called && lists && causes.signalling != Signalling::PerVector {
            // The pin has a level: it is down once the guest has read the causes. A read on the port's thread, which would clear
            // them, waits for the lock, so that no interrupt comes after its cause was cleared.
            self.trigger(raise.vectors);
            interrupting.causes.raised(raise.vectors, nanoseconds());
        } else if called {
            drop(interrupting);
            self.trigger(raise.vectors);
            self.interrupting.lock().causes.raised(raise.vectors, nanoseconds());
        }
        match later {
            Some(due) => CallResult::Later { due, called },
            None if called => CallResult::Called,
            None => CallResult::Unwanted,
        }
    }

    /// Nobody makes the scheduled call: the next ring schedules another.
    pub(super) fn forget_calls(&self) {
        self.interrupting.lock().scheduled = None;
    }

    /// Signals these interrupts. The caller reports the time after it, so that two interrupts are never closer than the interval.
    #[cold]
    fn trigger(&self, vectors: u8) {
        (0..u8::BITS as usize).filter(|vector| vectors >> vector & 1 != 0).for_each(|vector| {
            self.interrupts.trigger(vector);
        });
    }

    /// Called when the front end has unmasked the pin.
    pub(super) fn pin_unmasked(&self) {
        if self.interrupting().causes.pin() {
            self.interrupts.trigger(0);
        }
    }

    /// Called when the guest has disabled or enabled the pin.
    pub(super) fn disable_pin(&self, disabled: bool) {
        self.interrupts.disable_pin(disabled);
        if !disabled {
            self.pin_unmasked();
        }
    }

    /// Sets the port's own interrupt moderation.
    pub(super) fn moderate(&self, moderation: Moderation) {
        let mut interrupting = self.interrupting.lock();
        if interrupting.moderation != moderation {
            (interrupting.moderation, interrupting.tuner, interrupting.auto_interval) =
                (moderation, Tuner::default(), 0);
        }
    }

    /// The port's own least time between two interrupts at present. The guest may have set a longer one.
    pub(super) fn interval(&self) -> Duration {
        let interrupting = self.interrupting.lock();
        match interrupting.moderation {
            Moderation::Auto => Duration::from_nanos(interrupting.auto_interval),
            Moderation::Fixed { interval, .. } => interval,
        }
    }

    /// Sets the longest delay of the interrupt for sent frames.
    pub(super) fn set_completion_delay(&self, within: Duration) {
        self.interrupting().causes.set_completion_delay(nanoseconds_of(within));
        self.settle();
    }

    /// Reports a ring fault. The ring is idle until it is turned on again.
    #[cold]
    pub(super) fn report(&self, direction: &str, fault: RingFault) {
        let (now, last) = (nanoseconds(), self.reported.load(Ordering::Relaxed));
        if last == 0 || now.saturating_sub(last) >= REPORT_EVERY {
            self.reported.store(now, Ordering::Relaxed);
            let holes = self.quota.take_holes_exceeded().filter(|_| fault == RingFault::MemoryLost);
            match holes {
                Some(text) => self.observer.refused("memory_holes", text),
                None => self.observer.refused(fault.name(), format!("{direction} ring: {fault}")),
            }
        }
    }

    /// Returns the state of the guest, or `None` if another thread holds the registers until `until` is past: the guest
    /// can make that last.
    pub(super) fn status(&self, until: Instant) -> Option<Status> {
        let (connected, link, [transmit_ring, receive_ring]) = self.chip.try_lock_until(until)?.status();
        let accesses = self.access_counters.accesses(self.interrupting.lock().all_raised());
        let interrupts = match self.interrupts.mode() {
            Mode::None => "none",
            Mode::Intx => "intx",
            Mode::Msi => "msi",
            Mode::MsiX => "msi-x",
        };
        let state = State::new(connected, link && transmit_ring > 0 && receive_ring > 0);
        Some(Status { state, link, interrupts, transmit_ring, receive_ring, accesses })
    }
}

/// Clears a flag. Returns true if it was set.
fn take(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed)
}

/// Returns the settings that a guest has seen.
fn identity(settings: &Settings) -> [u8; 9] {
    let [a, b, c, d, e, f] = settings.mac;
    [(settings.model == Model::E1000e).into(), settings.mapped.into(), settings.csb.into(), a, b, c, d, e, f]
}

fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<R: Noted> Ring<R> {
    /// Stops the ring after a fault.
    #[cold]
    pub(super) fn fail(&mut self, device: &Device, direction: &str, fault: RingFault) {
        if let Ring::On(ring) = self {
            ring.set_broken();
        }
        *self = Ring::Broken;
        device.report(direction, fault);
    }
}
