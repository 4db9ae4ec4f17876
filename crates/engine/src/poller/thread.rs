//! A poller's thread and what belongs to it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Instant;

use ringway_switch::{Time, Workspace, contain};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::{CpuSet, gettid};

use super::sharing::Sharing;
use crate::call;
use crate::clock;
use crate::contain::{PanicCounter, run_or_exit};
use crate::meter::Meter;
use crate::os_scheduler::use_batch_scheduling;
use crate::poller_state::{PollerState, Shift};
use crate::schedule::Schedule;
use crate::settings::{EngineSettings, Idle};
use crate::shared::Shared;
use crate::timer::Timer;
use crate::topology::{Attached, Topology};

/// The value of a slot for "no port".
pub(super) const NO_PORT: usize = usize::MAX;
/// The token of the wake descriptor in epoll. The token of a port is its slot.
const WAKE_TOKEN: u64 = u64::MAX;
/// The token of the timer in epoll.
pub(super) const TIMER_TOKEN: u64 = u64::MAX - 1;

/// A port that the poller serves.
pub(super) struct Served {
    pub(super) attached: Attached,
    /// False while another poller has the input, and after a fault.
    pub(super) has_input: bool,
}

/// A poller. Belongs to its thread.
pub(super) struct Poller {
    pub(super) shared: Arc<Shared>,
    pub(super) state: Arc<PollerState>,
    /// This thread.
    pub(super) shift: Arc<Shift>,
    /// What the poller does without work, as configured.
    pub(super) idle: Idle,
    pub(super) sharing: Sharing,
    /// Most frames of a batch.
    pub(super) batch: usize,
    /// The time of the last reading of the clock.
    pub(super) now: Time,
    /// The set that the poller sleeps on. No other set has it in it.
    pub(super) epoll: Arc<OwnedFd>,
    /// Wakes the poller at a given time.
    pub(super) timer: Timer,
    /// The version of `topology`. 0: none.
    pub(super) version: u64,
    pub(super) topology: Arc<Topology>,
    /// What the poller may use parts of already: topologies that it began to adopt. More than one after a panic meanwhile.
    pub(super) unadopted: Vec<Arc<Topology>>,
    pub(super) schedule: Schedule,
    /// By slot of the schedule, which is also the port's token in epoll.
    pub(super) ports: Vec<Option<Served>>,
    /// Slots by the ids of their sources.
    pub(super) slots: HashMap<u64, usize>,
    /// True if frames moved since the last reading of the clock, other than frames that a limit holds back.
    pub(super) has_worked: bool,
    /// True if some port is a device.
    pub(super) has_devices: bool,
    /// True while another poller has the input of some port.
    pub(super) waits_for_input: bool,
    pub(super) work: Workspace,
    /// The slot of the port whose input is in use: a panic is attributed to it. [`NO_PORT`]: a panic is the poller's
    /// own.
    pub(super) using: usize,
    /// Panics of the poller itself.
    pub(super) strikes: PanicCounter,
    pub(super) meter: Meter,
}

/// Starts a poller's thread. It relieves the one before, if there is one: it takes over the poller's calls, and examines its visits.
///
/// # Errors
/// The kernel refuses a thread, a descriptor, memory or the pinning.
pub(crate) fn spawn(
    shared: Arc<Shared>,
    state: Arc<PollerState>,
    settings: &EngineSettings,
) -> io::Result<JoinHandle<()>> {
    let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
    epoll::add(&epoll, &state.wake, EventData::new_u64(WAKE_TOKEN), EventFlags::IN | EventFlags::ET)?;
    let timer = Timer::new()?;
    epoll::add(&epoll, timer.fd(), EventData::new_u64(TIMER_TOKEN), EventFlags::IN | EventFlags::ET)?;
    let in_quarantine = state.number >= shared.pollers;
    let (batch, core) = (settings.batch, state.core);
    let (idle, pacing) = if in_quarantine { (Idle::Sleep, false) } else { (settings.idle, settings.pacing) };
    let mut meter = Meter::new();
    if in_quarantine {
        meter.examine_always()?;
    }
    let name = if in_quarantine {
        format!("quarantine{}", state.number - shared.pollers)
    } else {
        format!("poller{}", state.number)
    };
    let (started, start) = channel();
    let shift = Shift::new();
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        ringway_switch::set_poller_number(state.number);
        shift.thread.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        let pinned = core.map(pin).unwrap_or_else(|| {
            use_batch_scheduling();
            Ok(())
        });
        let failed = pinned.is_err();
        let relieved = (!failed).then(|| state.begin_shift(&shift)).filter(|before| before.id != 0);
        if started.send(pinned).is_err() || failed {
            return;
        }
        call::prepare();
        if in_quarantine {
            // No longer dormant: the poller reads a topology now.
            state.account.adopted.store(0, Ordering::SeqCst);
        }
        let (topology, _) = shared.topology.get();
        let mut work = Workspace::new(batch);
        if in_quarantine {
            work.calls.serve_detours();
        }
        meter.enter_thread();
        if relieved.is_some() {
            meter.examine(clock::nanoseconds());
        }
        let mut poller = Poller {
            shared,
            state,
            shift,
            idle,
            sharing: Sharing::new(meter.usage().another(clock::nanoseconds())),
            batch,
            now: clock::time(Instant::now()),
            epoll,
            timer,
            version: 0,
            topology,
            unadopted: Vec::new(),
            schedule: Schedule::new(pacing),
            ports: Vec::new(),
            slots: HashMap::new(),
            has_worked: false,
            has_devices: false,
            waits_for_input: false,
            work,
            using: NO_PORT,
            strikes: PanicCounter::default(),
            meter,
        };
        run_or_exit(&name, || {
            if let Some(relieved) = relieved
                && let Err(place) = contain(|| poller.relieve(&relieved))
            {
                poller.recover(place);
            }
            while let Err(place) = contain(|| poller.run()) {
                poller.recover(place);
            }
        });
    })?;
    start.recv().map_err(|_| io::Error::other("the poller ended before it started"))??;
    Ok(thread)
}

/// Pins the calling thread to a CPU.
pub(super) fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("CPU {core} does not exist")));
    }
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run on CPU {core}: {error}")))
}

impl Poller {
    /// Returns true if the poller serves ports in quarantine only.
    #[inline]
    pub(super) fn is_quarantine_poller(&self) -> bool {
        self.state.number >= self.shared.pollers
    }
}
