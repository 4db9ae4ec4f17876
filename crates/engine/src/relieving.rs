//! Relief: a poller that the kernel keeps gets another thread, which serves all ports but the one that the first thread is at.
//!
//! The kernel keeps a thread for as long as a client likes in a fault of a page that the client is punching, and no signal ends that
//! (`docs/decisions/waits.md`). So the ports go, and the thread stays. An input lies in its port between visits ([`crate::source`]), where the next
//! thread finds it; what the first one holds, an input and perhaps a receiver's output, stays with it. The receiver's frames go by its detour
//! ([`crate::quarantine`]) until then. When the kernel lets the first thread go, it ends its visit, which changes nothing for the others, puts the
//! input back, makes its pending calls, and ends. Its successor examines its visits, so that the next stall of the port is charged.
//!
//! Whose memory keeps the thread is known if it touches that of one port only: when it visits or calls that one, or when it delivers in an examined
//! visit. Then that port is shut before the successor begins ([`crate::stall`]), and with a second thread all ports of its client, so that the
//! successor is not kept there, too. Otherwise nothing is shut, and the successor's visits tell. Pollers examine their visits for as long as a thread is
//! kept. So a client keeps two threads, and one of each poller where that exchanged its frames with another client.
//!
//! The thread here looks each [`TICK`]. A poller that has not read the clock since the look before, and is at the same port, is kept if its
//! thread is in the state `D`, or waits for an output that such a thread has. One that has no processor is in another state. The thread rests while all
//! pollers sleep: the first one that wakes, wakes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_switch::{DetourRoom, Touching, prepare_detours};

use crate::contain::run_or_exit;
use crate::poller;
use crate::poller_state::{PollerState, Shift};
use crate::quarantine;
use crate::relief::Relieved;
use crate::settings::EngineSettings;
use crate::shared::Shared;
use crate::stall::Stall;
use crate::topology::{Attached, Topology};

/// Time between two looks at the pollers. A thread that is kept is noticed at the second look.
const TICK: Duration = Duration::from_millis(20);
/// Looks at sleeping pollers after which the thread rests.
const LOOKS_BEFORE_REST: u32 = 50;
/// How long an output is locked whose owner is kept, at least. Others have it for a batch.
const HELD_FOR: Duration = Duration::from_millis(1);
/// Most threads that are kept at a time. A poller whose thread is one more waits for it.
const MOST_KEPT: usize = 64;

/// Threads that wait to relieve others.
const SPARES: usize = 4;
/// Time after which a spare thread or a spare buffer is tried again for which the kernel had no means.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Starts the relieving thread, the threads that can relieve others, and one that starts further ones and maps memory for detours: it may wait for
/// the kernel, as each thread that maps memory.
///
/// # Errors
/// The kernel refuses a thread.
pub(crate) fn start(shared: &Arc<Shared>, settings: &EngineSettings) -> io::Result<Vec<JoinHandle<()>>> {
    for _ in 0..SPARES {
        add_spare(shared, settings)?;
    }
    let (for_spares, of_spares) = (Arc::clone(shared), settings.clone());
    let starter = std::thread::Builder::new().name("spares".into());
    let starter = starter.spawn(move || run_or_exit("spares", || start_spares(&for_spares, &of_spares)))?;
    let mut watcher =
        Watcher { shared: Arc::clone(shared), seen: vec![Seen::default(); shared.pollers], kept: Vec::new() };
    let thread = std::thread::Builder::new().name("relief".into());
    let thread = thread.spawn(move || run_or_exit("relief", || watcher.run()))?;
    shared.relief.begin(thread.thread().clone(), starter.thread().clone());
    Ok(vec![thread, starter])
}

fn add_spare(shared: &Arc<Shared>, settings: &EngineSettings) -> io::Result<()> {
    let spare = poller::spare(shared, settings, "spare".to_owned())?;
    shared.relief.spares().push(spare);
    Ok(())
}

/// Maps memory for further detours, and starts a spare thread for each one that is taken, until the engine ends.
fn start_spares(shared: &Arc<Shared>, settings: &EngineSettings) {
    while !shared.stop.load(Ordering::Acquire) {
        let has_memory = prepare_detours();
        let missing = shared.relief.spares().len() < SPARES;
        if !missing && has_memory {
            std::thread::park();
        } else if !missing || add_spare(shared, settings).is_err() {
            std::thread::park_timeout(TRY_AGAIN);
        }
    }
}

/// What a look has seen of a poller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    shift: u64,
    turns: u64,
    using: u64,
    touching: usize,
    is_asleep: bool,
}

struct Watcher {
    shared: Arc<Shared>,
    /// By poller: the last look.
    seen: Vec<Seen>,
    /// Threads that were relieved and have not ended.
    kept: Vec<Kept>,
}

/// A thread that was relieved, and the port at which it is kept, if that is known.
struct Kept {
    shift: Arc<Shift>,
    stall: Option<Stall>,
}

impl Watcher {
    fn run(&mut self) {
        let mut asleep = 0;
        while !self.shared.stop.load(Ordering::Acquire) {
            asleep = if self.look() { asleep + 1 } else { 0 };
            if asleep >= LOOKS_BEFORE_REST && self.kept.is_empty() {
                self.rest();
                asleep = 0;
            } else {
                std::thread::park_timeout(TICK);
            }
        }
    }

    /// Waits until a poller wakes.
    fn rest(&self) {
        let relief = &self.shared.relief;
        relief.is_resting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_awake = |state: &Arc<PollerState>| !state.shift().is_asleep.load(Ordering::Relaxed);
        if self.pollers().iter().any(is_awake) || self.shared.stop.load(Ordering::Acquire) {
            relief.is_resting.store(false, Ordering::Relaxed);
        }
        while relief.is_resting.load(Ordering::Relaxed) {
            std::thread::park();
        }
    }

    fn pollers(&self) -> &[Arc<PollerState>] {
        &self.shared.states[..self.shared.pollers]
    }

    /// Looks at all pollers and relieves those that are kept. Returns true if all sleep.
    fn look(&mut self) -> bool {
        self.let_go();
        let mut all_sleep = true;
        for number in 0..self.seen.len() {
            let state = Arc::clone(&self.pollers()[number]);
            let shift = state.shift();
            let now = see(&shift);
            all_sleep &= now.is_asleep;
            let before = std::mem::replace(&mut self.seen[number], now);
            if now == before && !now.is_asleep && self.is_kept(&shift) && see(&shift) == now {
                self.relieve(&state, shift, now);
            }
        }
        all_sleep
    }

    /// Returns true if the kernel keeps a thread, or the thread waits for one that is kept.
    fn is_kept(&self, shift: &Shift) -> bool {
        match state_of(shift) {
            Some('D') => true,
            Some('S') => self.kept.iter().any(|kept| state_of(&kept.shift) == Some('D')),
            _ => false,
        }
    }

    /// Opens the ports whose memory keeps no thread any more.
    fn let_go(&mut self) {
        // The thread itself has a reference for as long as it runs.
        for Kept { stall, .. } in self.kept.extract_if(.., |kept| Arc::strong_count(&kept.shift) == 1) {
            stall.into_iter().for_each(|stall| stall.end(&self.shared));
        }
        self.shared.relief.set_kept(self.kept.len());
    }

    #[cold]
    fn relieve(&mut self, state: &Arc<PollerState>, shift: Arc<Shift>, seen: Seen) {
        if self.kept.len() >= MOST_KEPT {
            return;
        }
        let shared = &self.shared;
        // Without a spare thread, the next look tries again.
        let Some(spare) = shared.relief.take_spare() else { return };
        let (topology, _) = shared.topology.get();
        let culprit = culprit(&topology, &shift, seen);
        // Before a topology is published without its ports being shut.
        shared.relief.set_kept(self.kept.len() + 1);
        let is_examining = shift.is_examining.load(Ordering::Relaxed);
        let stall = culprit.map(|attached| Stall::begin(shared, attached, is_examining));
        // Nobody waits for the output that the thread has: frames for it go by the port's detour.
        // Those of ports in quarantine and of shut ones do so already.
        let is_held = |attached: &&Attached| {
            let has_detour = attached.source.quarantine_poller().is_some() || attached.source.is_shut();
            !has_detour && attached.port().is_some_and(|port| port.is_output_held())
        };
        let held: Vec<_> = topology.ports.iter().filter(is_held).collect();
        std::thread::sleep(HELD_FOR);
        for attached in held.into_iter().filter(is_held) {
            quarantine::begin(shared, attached, DetourRoom::Spare);
        }
        let used = || topology.ports.iter().find(|attached| attached.source.id() == seen.using);
        let port = culprit.or_else(used).and_then(|attached| attached.port()).map(|port| port.name().to_owned());
        let Ok(successor) = spare.begin(Arc::clone(state)) else {
            stall.into_iter().for_each(|stall| stall.cancel(shared));
            return;
        };
        shared.relief.add_successor(successor);
        self.kept.push(Kept { shift, stall });
        shared.relief.report(Relieved { poller: state.number, port });
        shared.report_fault();
    }
}

/// The port whose client's memory keeps a thread, if that can be no other.
fn culprit<'t>(topology: &'t Topology, shift: &Shift, seen: Seen) -> Option<&'t Attached> {
    if state_of(shift) != Some('D') {
        return None;
    }
    let mut ports = topology.ports.iter();
    if seen.touching == 0 {
        return ports.find(|attached| attached.source.id() == seen.using && attached.source.is_held_by(shift));
    }
    let touched = ports.find(|attached| attached.port().is_some_and(|port| Touching::names(seen.touching, port)))?;
    // A frame that is delivered is copied from its sender's memory, unless the visit is examined.
    let is_alone = shift.is_examining.load(Ordering::Relaxed) || !touched.port()?.is_output_held();
    is_alone.then_some(touched)
}

fn see(shift: &Shift) -> Seen {
    Seen {
        shift: shift.id,
        turns: shift.turns.load(Ordering::Relaxed),
        using: shift.using.load(Ordering::Relaxed),
        touching: shift.touching.number(),
        is_asleep: shift.is_asleep.load(Ordering::Relaxed),
    }
}

/// The state of a thread (proc_pid_stat(5)): `D` in the kernel and not to be woken, `S` asleep, `R` with a processor or waiting for one.
fn state_of(shift: &Shift) -> Option<char> {
    let thread = shift.thread.load(Ordering::Relaxed);
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name before it may hold anything.
    stat.rsplit_once(") ")?.1.chars().next()
}
