//! A poller's thread and what belongs to it.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ringway_runtime::call;
use ringway_runtime::clock;
use ringway_runtime::contain::{PanicCounter, run_or_exit};
use ringway_runtime::os_scheduler::use_batch_scheduling;
use ringway_runtime::serving::Note;
use ringway_runtime::timer::Timer;
use ringway_switch::{Time, Touching, Workspace, contain};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::{CpuSet, gettid};

use super::sharing::Sharing;
use crate::meter::Meter;
use crate::poller_state::{PollerState, Shift};
use crate::schedule::Schedule;
use crate::settings::{EngineSettings, Idle};
use crate::shared::{Released, Shared};
use crate::spare::{Begun, Spare};
use crate::topology::{Attached, Topology};

/// The id of a source for "no port".
pub(super) const NO_PORT: u64 = 0;
/// The token of the wake descriptor in epoll. The token of a port is its slot.
const WAKE_TOKEN: u64 = u64::MAX;
/// The token of the timer in epoll.
pub(super) const TIMER_TOKEN: u64 = u64::MAX - 1;

/// A port that the poller serves.
pub(super) struct Served {
    pub(super) attached: Attached,
    /// False while another poller has the input, and after a fault.
    pub(super) has_input: bool,
    /// Attempts to end the port's detour in vain: in quarantine, those that found frames in it, and no thread that adds some.
    pub(super) ends_in_vain: u32,
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
    /// Names the port whose input is in use: a panic is attributed to it, and the end of the process. None: both are the poller's own.
    pub(super) note: Note,
    /// Panics of the poller itself.
    pub(super) strikes: PanicCounter,
    pub(super) meter: Meter,
}

/// What a poller's thread has before it serves a port.
struct Equipment {
    epoll: Arc<OwnedFd>,
    timer: Timer,
    work: Workspace,
    meter: Meter,
    shift: Arc<Shift>,
    note: Note,
}

impl Equipment {
    fn new(batch: usize) -> io::Result<Equipment> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let timer = Timer::new()?;
        epoll::add(&epoll, timer.fd(), EventData::new_u64(TIMER_TOKEN), EventFlags::IN | EventFlags::ET)?;
        let note = Note::new();
        let work = Workspace::noting(batch, Touching::at(note.receiver()));
        let shift = Shift::new(work.touching());
        Ok(Equipment { epoll, timer, work, meter: Meter::new(), shift, note })
    }
}

/// Starts a thread of this name that waits to become a poller's. It relieves the one before, if there is one: it takes over the poller's calls, and
/// examines its visits.
///
/// # Errors
/// The kernel refuses a thread, a descriptor or memory.
pub(crate) fn spare(shared: &Arc<Shared>, settings: &EngineSettings, name: String) -> io::Result<Spare> {
    let (shared, settings) = (Arc::clone(shared), settings.clone());
    let mut equipment = Equipment::new(settings.batch)?;
    Spare::start(name, move |order| {
        call::prepare();
        make_resident();
        // Here, as it takes a millisecond. Without it, a long visit tries again.
        let _ = equipment.meter.prepare();
        if let Some((state, begun)) = order.wait() {
            serve(shared, state, &settings, equipment, begun);
        }
    })
}

/// Has the kernel bring in the stack of the calling thread, and memory for its first allocations.
#[inline(never)]
fn make_resident() {
    const BYTES: usize = 64 << 10;
    std::hint::black_box(&mut [1u8; BYTES]);
    std::hint::black_box(&mut vec![1u8; BYTES]);
}

/// The name of a poller's thread.
pub(crate) fn name_of(shared: &Shared, number: usize) -> String {
    match number.checked_sub(shared.pollers) {
        Some(number) => format!("quarantine{number}"),
        None => format!("poller{number}"),
    }
}

/// Serves a poller's ports. Says first whether that can be.
fn serve(shared: Arc<Shared>, state: Arc<PollerState>, settings: &EngineSettings, equipment: Equipment, begun: Begun) {
    let Equipment { epoll, timer, mut work, mut meter, shift, note } = equipment;
    let in_quarantine = state.number >= shared.pollers;
    let (batch, core) = (settings.batch, state.core);
    let (idle, pacing) = if in_quarantine { (Idle::Sleep, false) } else { (settings.idle, settings.pacing) };
    let name = name_of(&shared, state.number);
    ringway_switch::set_poller_number(state.number);
    shift.thread.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    let pinned = core.map_or_else(
        || {
            use_batch_scheduling();
            Ok(())
        },
        pin,
    );
    let wakes =
        || Ok(epoll::add(&epoll, &state.wake, EventData::new_u64(WAKE_TOKEN), EventFlags::IN | EventFlags::ET)?);
    let ready = pinned.and_then(|()| wakes());
    let failed = ready.is_err();
    let relieved = (!failed).then(|| state.begin_shift(&shift)).filter(|before| before.id != 0);
    if relieved.is_some() {
        // Cut by the kernel, if it is long.
        let _ = CString::new(&*name).map(|name| rustix::thread::set_name(&name));
    }
    begun.say(ready);
    if failed {
        return;
    }
    if in_quarantine {
        note.enter_quarantine();
    } else {
        note.enter_poller();
    }
    if in_quarantine {
        // No longer dormant: the poller reads a topology now.
        state.account.adopted.store(0, Ordering::SeqCst);
        work.calls.serve_detours();
        meter.examine_always();
    }
    let old = Arc::clone(&shared);
    work.calls.give_last_to(Box::new(move |port| old.old.release(Released::Port(port))));
    let (topology, _) = shared.topology.get();
    meter.enter_thread();
    if relieved.is_some() && !in_quarantine {
        meter.examine(clock::nanoseconds());
    }
    shift.is_examining.store(meter.examining, Ordering::Relaxed);
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
        note,
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
