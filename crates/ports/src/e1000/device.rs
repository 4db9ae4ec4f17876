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
//! - The 82574L's two transmit rings are served in turn (`InputSide::turn`), each with causes of its own. Linux uses one
//!   ring; FreeBSD uses both where it has two processors.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use ringway_engine::nanoseconds;
use ringway_memory::Quota;
use ringway_switch::{Asked, Moderation, Pace};
use rustix::event::{EventfdFlags, eventfd};

use super::access::Core;
use super::account::Account;
use super::interrupt::{Causes, Way};
use super::output::Left;
use super::ring_page::RingPage;
use super::rings::{PacketBuffer, RingFault};
use super::sides::{InputSide, OutputSide, Ring};
use super::{Model, Settings, State, Status};
use crate::vfio_user::{Interrupts, Mode, Observer};

/// Shortest time in nanoseconds between two reports of ring faults: a guest can cause faults at a high rate.
const REPORT_EVERY: u64 = 1_000_000_000;

/// Polling for descriptors that the guest gives without a message, while frames wait for them: the first poll is due
/// after `LOOK` nanoseconds. The interval doubles after each poll without result, at most `SELDOM` times.
const LOOK: u64 = 100_000;
const SELDOM: u32 = 5;

/// Interrupt causes, and the state of their delivery.
#[derive(Debug)]
pub(super) struct Interrupting {
    pub(super) causes: Causes,
    /// The time for which a poller has scheduled a call that will check again. Later calls are not needed.
    listed: Option<u64>,
    /// Interrupts raised since the statistics registers were read (`raised`), and before that (`raised_before`).
    raised: u64,
    raised_before: u64,
    moderation: Moderation,
    pace: Pace,
    /// Number of polls for descriptors without result since the last with one.
    pub(super) looks: u32,
    /// Frames sent and received, from which `pace` computes a rate.
    pub(super) frames: u64,
}

/// The device: see the description of the module.
pub(super) struct Device {
    pub(super) model: Model,
    /// Whether the front end may map the ring pages.
    pub(super) mapped: bool,
    /// Whether the guest may use a communication status block.
    pub(super) csb: bool,
    pub(super) core: Mutex<Core>,
    pub(super) page: RingPage,
    pub(super) account: Account,
    /// Limits and use of the memory that front ends may share.
    pub(super) quota: Arc<Quota>,
    pub(super) input: Arc<Mutex<InputSide>>,
    pub(super) output: Mutex<OutputSide>,
    interrupting: Mutex<Interrupting>,
    interrupts: Arc<Interrupts>,
    observer: Arc<dyn Observer>,
    reported: AtomicU64,
    /// True while a poller wants a kick for frames.
    armed: AtomicBool,
    /// True while a poller wants a kick for interrupts to be checked.
    armed_for_news: AtomicBool,
    /// True while frames wait for descriptors.
    pub(super) waiting: AtomicBool,
    /// True if a poller has to check the interrupts.
    news: AtomicBool,
    wake: OwnedFd,
}

impl Interrupting {
    fn all_raised(&self) -> u64 {
        self.raised_before + self.raised
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
        let core = Core::new(settings);
        let page = RingPage::new()?;
        core.reset_page(&page);
        let mut causes = Causes::new(core.known_causes());
        causes.set_patience(nanoseconds_of(settings.completion_delay));
        let interrupting = Interrupting {
            causes,
            listed: None,
            raised: 0,
            raised_before: 0,
            moderation: Moderation::default(),
            pace: Pace::default(),
            looks: 0,
            frames: 0,
        };
        Ok(Device {
            model: settings.model,
            mapped: settings.mapped && settings.model == Model::E1000e,
            csb: settings.csb && settings.model == Model::E1000,
            page,
            account: Account::default(),
            quota: Quota::of_port(settings.memory),
            input: Arc::new(Mutex::new(core.new_input())),
            output: Mutex::new(core.new_output(PacketBuffer::new(settings.receive_buffer)?)),
            core: Mutex::new(core),
            interrupting: Mutex::new(interrupting),
            interrupts: Arc::new(Interrupts::default()),
            observer,
            reported: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            armed_for_news: AtomicBool::new(false),
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
        self.armed_for_news.store(false, Ordering::Relaxed);
    }

    /// Enables kicks for interrupts to be checked. Returns true if there are some already.
    pub(super) fn arm_for_news(&self) -> bool {
        self.armed_for_news.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_news()
    }

    /// Has the poller that is serving the port check the interrupts.
    pub(super) fn set_news(&self) {
        self.news.store(true, Ordering::Release);
    }

    /// Has a poller check the interrupts, and wakes it if it has asked for a kick.
    pub(super) fn tell_news(&self) {
        self.set_news();
        fence(Ordering::SeqCst);
        if take(&self.armed) | take(&self.armed_for_news) {
            self.wake();
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.news.load(Ordering::Relaxed)
    }

    pub(super) fn take_news(&self) -> bool {
        self.has_news() && self.news.swap(false, Ordering::Acquire)
    }

    /// Locks the interrupt state.
    #[inline]
    pub(super) fn interrupting(&self) -> MutexGuard<'_, Interrupting> {
        let mut interrupting = self.interrupting.lock();
        let way = if self.interrupts.mode() == Mode::MsiX { Way::Several } else { Way::One };
        interrupting.causes.set_way(way);
        interrupting
    }

    /// Raises interrupts after registers have changed. Has a poller raise those that are due later.
    pub(super) fn settle(&self) {
        if let Asked::Later { .. } = self.ring(None, false) {
            self.tell_news();
        }
    }

    /// Raises the interrupts that are due. `fired` is the time for which a scheduled call has come. `lists` tells that
    /// the caller schedules a call for the returned time.
    pub(super) fn ring(&self, fired: Option<u64>, lists: bool) -> Asked {
        let unseen = lists && self.is_waiting() && self.drain() == Left::Unseen;
        let mut interrupting = self.interrupting();
        let Interrupting { causes, listed, raised, moderation, pace, looks, frames, .. } = &mut *interrupting;
        if fired.is_some() && *listed == fired {
            *listed = None;
        }
        if causes.is_quiet() && !unseen {
            return Asked::Unwanted;
        }
        let now = nanoseconds();
        let floor = nanoseconds_of(moderation.interval);
        let applies = moderation.above.is_none_or(|above| pace.is_above(above, *frames, now, floor));
        causes.set_floor(if applies { floor } else { 0 });
        let mut raise = causes.settle(now);
        if unseen {
            let look = now + (LOOK << (*looks).min(SELDOM));
            *looks += u32::from(fired.is_some());
            raise.next = Some(raise.next.map_or(look, |next| next.min(look)));
        }
        // If a call is already scheduled for an earlier time that has not come yet, that call will check again.
        let later = raise.next.filter(|next| listed.filter(|listed| *listed > now).is_none_or(|listed| *next < listed));
        if lists && later.is_some() {
            *listed = later;
        }
        *raised += u64::from(raise.vectors.count_ones());
        drop(interrupting);
        let called = raise.vectors != 0;
        if called {
            self.trigger(raise.vectors);
        }
        match later {
            Some(due) => Asked::Later { due, called },
            None if called => Asked::Called,
            None => Asked::Unwanted,
        }
    }

    #[cold]
    fn trigger(&self, vectors: u8) {
        (0..u8::BITS as usize).filter(|vector| vectors >> vector & 1 != 0).for_each(|vector| {
            self.interrupts.trigger(vector);
        });
        // The time is taken after the calls, so that two interrupts are never closer than the interval.
        self.interrupting.lock().causes.raised(vectors, nanoseconds());
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
        self.interrupting.lock().moderation = moderation;
    }

    /// Sets the longest delay of the interrupt for sent frames.
    pub(super) fn set_completion_delay(&self, within: Duration) {
        self.interrupting().causes.set_patience(nanoseconds_of(within));
        self.settle();
    }

    /// Reports a ring fault. The ring is idle until it is turned on again.
    #[cold]
    pub(super) fn report(&self, direction: &str, fault: RingFault) {
        let (now, last) = (nanoseconds(), self.reported.load(Ordering::Relaxed));
        if last == 0 || now.saturating_sub(last) >= REPORT_EVERY {
            self.reported.store(now, Ordering::Relaxed);
            let holes = self.quota.take_too_many_holes().filter(|_| fault == RingFault::MemoryLost);
            match holes {
                Some(text) => self.observer.refused("memory_holes", text),
                None => self.observer.refused(fault.name(), format!("{direction} ring: {fault}")),
            }
        }
    }

    /// Returns the state of the guest, or `None` if another thread holds the registers until `until` is past: the guest
    /// can make that last.
    pub(super) fn status(&self, until: Instant) -> Option<Status> {
        let (connected, link, [transmit_ring, receive_ring]) = self.core.try_lock_until(until)?.status(&self.page);
        let accesses = self.account.accesses(self.interrupting.lock().all_raised());
        let interrupts = match self.interrupts.mode() {
            Mode::None => "none",
            Mode::Intx => "intx",
            Mode::Msi => "msi",
            Mode::MsiX => "msi-x",
        };
        let state = match (connected, link && transmit_ring > 0 && receive_ring > 0) {
            (false, _) => State::Waiting,
            (true, false) => State::Connected,
            (true, true) => State::Up,
        };
        Some(Status { state, link, interrupts, transmit_ring, receive_ring, accesses })
    }
}

/// Clears a flag. Returns true if it was set.
fn take(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed)
}

fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<R> Ring<R> {
    /// Stops the ring after a fault.
    #[cold]
    pub(super) fn fail(&mut self, device: &Device, direction: &str, fault: RingFault) {
        *self = Ring::Broken;
        device.report(direction, fault);
    }
}
