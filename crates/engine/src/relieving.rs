//! Relief: a poller that the kernel keeps gets another thread, which serves all ports but the one that the first thread is at.
//!
//! The kernel keeps a thread for as long as a client likes in a fault of a page that the client is punching, and no signal ends that
//! (`docs/decisions/waits.md`). So the ports go, and the thread stays. An input lies in its port between visits ([`crate::source`]), where the next
//! thread finds it; what the first one holds, an input and perhaps a receiver's output, stays with it. The receiver's frames go by its detour
//! ([`crate::quarantine`]) until then. When the kernel lets the first thread go, it ends its visit, which changes nothing for the others, puts the
//! input back, makes its pending calls, and ends. Its successor examines its visits, so that the next stall of the port is charged.
//!
//! The thread here looks each [`TICK`]. A poller that has not read the clock since the look before, and is at the same port, is kept if its
//! thread is in the state `D`, or waits for an output that such a thread has. One that has no processor is in another state. The thread rests while all
//! pollers sleep: the first one that wakes, wakes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::contain::run_or_exit;
use crate::poller;
use crate::poller_state::{PollerState, Shift};
use crate::quarantine;
use crate::relief::Relieved;
use crate::settings::EngineSettings;
use crate::shared::Shared;
use crate::topology::Attached;

/// Time between two looks at the pollers. A thread that is kept is noticed at the second look.
const TICK: Duration = Duration::from_millis(20);
/// Looks at sleeping pollers after which the thread rests.
const LOOKS_BEFORE_REST: u32 = 50;
/// How long an output is locked whose owner is kept, at least. Others have it for a batch.
const HELD_FOR: Duration = Duration::from_millis(1);
/// Most threads that are kept at a time. A poller whose thread is one more waits for it.
const MOST_KEPT: usize = 64;

/// Starts the relieving thread.
///
/// # Errors
/// The kernel refuses a thread.
pub(crate) fn start(shared: &Arc<Shared>, settings: &EngineSettings) -> io::Result<JoinHandle<()>> {
    let mut watcher = Watcher {
        shared: Arc::clone(shared),
        settings: settings.clone(),
        seen: vec![Seen::default(); shared.pollers],
        kept: Vec::new(),
    };
    let thread = std::thread::Builder::new().name("relief".into());
    let thread = thread.spawn(move || run_or_exit("relief", || watcher.run()))?;
    shared.relief.begin(thread.thread().clone());
    Ok(thread)
}

/// What a look has seen of a poller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    shift: u64,
    turns: u64,
    using: u64,
    is_asleep: bool,
}

struct Watcher {
    shared: Arc<Shared>,
    settings: EngineSettings,
    /// By poller: the last look.
    seen: Vec<Seen>,
    /// Threads that were relieved and have not ended.
    kept: Vec<Arc<Shift>>,
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
        // The thread itself has a reference for as long as it runs.
        self.kept.retain(|shift| Arc::strong_count(shift) > 1);
        let mut all_sleep = true;
        for number in 0..self.seen.len() {
            let state = Arc::clone(&self.pollers()[number]);
            let shift = state.shift();
            let now = see(&shift);
            all_sleep &= now.is_asleep;
            let before = std::mem::replace(&mut self.seen[number], now);
            if now == before && !now.is_asleep && self.is_kept(&shift) && see(&shift) == now {
                self.relieve(&state, shift, now.using);
            }
        }
        all_sleep
    }

    /// Returns true if the kernel keeps a thread, or the thread waits for one that is kept.
    fn is_kept(&self, shift: &Shift) -> bool {
        match state_of(shift) {
            Some('D') => true,
            Some('S') => self.kept.iter().any(|kept| state_of(kept) == Some('D')),
            _ => false,
        }
    }

    #[cold]
    fn relieve(&mut self, state: &Arc<PollerState>, shift: Arc<Shift>, using: u64) {
        if self.kept.len() >= MOST_KEPT {
            return;
        }
        let shared = &self.shared;
        let (topology, _) = shared.topology.get();
        // Nobody waits for the output that the thread has: frames for it go by the port's detour.
        // Those of ports in quarantine do so already.
        let is_held = |attached: &&Attached| {
            attached.source.quarantine_poller().is_none() && attached.port().is_some_and(|port| port.is_output_held())
        };
        let held: Vec<_> = topology.ports.iter().filter(is_held).collect();
        std::thread::sleep(HELD_FOR);
        for attached in held.into_iter().filter(is_held) {
            quarantine::begin(shared, attached);
        }
        let used = topology.ports.iter().find(|attached| attached.source.id() == using);
        let port = used.and_then(|attached| attached.port()).map(|port| port.name().to_owned());
        // Without means for another thread, the next look tries again.
        let Ok(successor) = poller::spawn(Arc::clone(shared), Arc::clone(state), &self.settings) else { return };
        shared.relief.add_successor(successor);
        self.kept.push(shift);
        shared.relief.report(Relieved { poller: state.number, port });
        shared.report_fault();
    }
}

fn see(shift: &Shift) -> Seen {
    Seen {
        shift: shift.id,
        turns: shift.turns.load(Ordering::Relaxed),
        using: shift.using.load(Ordering::Relaxed),
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
