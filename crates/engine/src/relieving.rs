//! Relief: a poller that the kernel keeps gets another thread, which serves all ports but the one that the first thread is at.
//!
//! The kernel keeps a thread for as long as a client likes in a fault of a page that the client is punching, and no signal ends that
//! (`docs/decisions/waits.md`). So the ports go, and the thread stays. An input lies in its port between visits ([`crate::source`]), where the next
//! thread finds it; what the first one holds, an input and perhaps a receiver's output, stays with it. The receiver's frames take a detour until
//! then ([`quarantine::divert`]), and its own poller delivers them afterwards, or a quarantine poller. When the kernel lets the first thread go, it ends its pass, puts the
//! input back, and ends. It makes no pending calls: all pollers ask their clients anew. Its successor examines its visits.
//!
//! Whose memory keeps the thread is known if it touches that of one port only: when it visits or calls that one, or when it delivers in an examined
//! visit. The port may have been removed meanwhile ([`crate::known`]). Then that port is shut before the successor begins ([`crate::stall`]), and with
//! a second thread all ports of its client, so that the successor is not kept there, too. Otherwise nothing is shut, and the successor's visits tell.
//! Pollers examine their visits for as long as a thread is kept. So a client keeps two threads, and one of each poller where that exchanged its frames
//! with another client. A thread that goes on and is kept at another port is noticed there, too, so that each port is charged for its own time.
//!
//! The thread here looks each [`TICK`]. A poller, also a quarantine poller, that has not read the clock since the look before, and is at the same
//! port, is kept if its thread is in the state `D` at both looks, or waits for an output that such a thread has. One look is not enough: a thread that
//! has had no processor for a while may be in that state for a moment. The thread rests while all pollers sleep: the first one that wakes, wakes it.
//!
//! The thread here allocates nothing from the look at a poller until the successor serves it: an allocation may wait for the lock of the process's
//! mappings, which the same fault can hold.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_runtime::contain::run_or_exit;
use ringway_switch::{Port, Touching, prepare_detours};

use crate::known::Known;
use crate::poller;
use crate::poller_state::{PollerState, Shift};
use crate::quarantine;
use crate::relief::{MOST_KEPT, SPARES};
use crate::settings::EngineSettings;
use crate::shared::Shared;
use crate::stall::Stall;
use crate::topology::Attached;

/// Time between two looks at the pollers. A thread that is kept is noticed at the second look.
const TICK: Duration = Duration::from_millis(20);
/// Looks at sleeping pollers after which the thread rests.
const LOOKS_BEFORE_REST: u32 = 50;
/// How long an output is locked whose owner is kept, at least. Others have it for a batch.
const HELD_FOR: Duration = Duration::from_millis(1);

/// Time after which a spare thread or a spare buffer is tried again for which the kernel had no means.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Starts the relieving thread, the threads that can relieve others, and one that starts further ones and maps memory for detours: it may wait for
/// the kernel, as each thread that maps memory. That one says when all are there for the first time, or that there was no room for one.
///
/// # Errors
/// The kernel refuses a thread.
pub(crate) fn start(
    shared: &Arc<Shared>,
    settings: &EngineSettings,
) -> io::Result<(Vec<JoinHandle<()>>, Receiver<bool>)> {
    let (prepared, is_prepared) = channel();
    let (for_spares, of_spares) = (Arc::clone(shared), settings.clone());
    let starter = std::thread::Builder::new().name("spares".into());
    let starter = starter.spawn(move || run_or_exit("spares", || start_spares(&for_spares, &of_spares, &prepared)))?;
    let mut watcher = Watcher {
        shared: Arc::clone(shared),
        seen: vec![Seen::default(); shared.states.len()],
        kept: Vec::with_capacity(MOST_KEPT),
        has_diverted: false,
    };
    let thread = std::thread::Builder::new().name("relief".into());
    let thread = thread.spawn(move || run_or_exit("relief", || watcher.run()))?;
    shared.relief.begin(thread.thread().clone(), starter.thread().clone());
    Ok((vec![thread, starter], is_prepared))
}

fn add_spare(shared: &Arc<Shared>, settings: &EngineSettings) -> io::Result<()> {
    let spare = poller::spare(shared, settings, "spare".to_owned())?;
    shared.relief.add_spare(spare);
    Ok(())
}

/// Maps memory for further detours, and starts a spare thread for each one that is taken, until the engine ends.
fn start_spares(shared: &Arc<Shared>, settings: &EngineSettings, prepared: &Sender<bool>) {
    while !shared.stop.load(Ordering::Acquire) {
        shared.relief.forget_ended();
        let has_memory = prepare_detours();
        let missing = shared.relief.spares() < SPARES;
        let is_done = !missing && has_memory;
        if !is_done && missing && add_spare(shared, settings).is_ok() {
            continue;
        }
        // Nobody hears it from the second time on.
        let _ = prepared.send(is_done);
        if is_done {
            std::thread::park();
        } else {
            std::thread::park_timeout(TRY_AGAIN);
        }
    }
}

/// Where a look has seen a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    shift: u64,
    turns: u64,
    charges: u64,
    using: u64,
    touching: u64,
    is_asleep: bool,
}

/// What a look has seen of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    place: Place,
    /// Of a thread that is not asleep: [`state_of`].
    state: Option<char>,
}

struct Watcher {
    shared: Arc<Shared>,
    /// By poller: the last look.
    seen: Vec<Seen>,
    /// Threads that were relieved and have not ended.
    kept: Vec<Kept>,
    /// Frames for some port take a detour as a kept thread has its output.
    has_diverted: bool,
}

/// A thread that was relieved.
struct Kept {
    shift: Arc<Shift>,
    seen: Seen,
    /// The port at which it is kept, if it is and that is known.
    stall: Option<Stall>,
}

impl Watcher {
    fn run(&mut self) {
        let mut asleep = 0;
        while !self.shared.stop.load(Ordering::Acquire) {
            asleep = if self.look() { asleep + 1 } else { 0 };
            if asleep >= LOOKS_BEFORE_REST && self.kept.is_empty() && !self.has_diverted {
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
        &self.shared.states
    }

    /// Looks at all pollers and relieves those that are kept. Returns true if all sleep.
    fn look(&mut self) -> bool {
        self.follow();
        self.end_diversions();
        let mut all_sleep = true;
        for number in 0..self.seen.len() {
            let state = Arc::clone(&self.pollers()[number]);
            let shift = state.shift();
            let now = see(&shift);
            all_sleep &= now.place.is_asleep;
            let before = std::mem::replace(&mut self.seen[number], now);
            if now == before && self.is_kept(now) && see(&shift) == now {
                self.relieve(&state, shift, now);
            }
        }
        all_sleep
    }

    /// `seen`: what two looks saw of a thread. Returns true if the kernel keeps that thread, or if it waits for a thread that the kernel keeps.
    fn is_kept(&self, seen: Seen) -> bool {
        match seen.state {
            Some('D') => true,
            Some('S') => self.kept.iter().any(|kept| state_of(&kept.shift) == Some('D')),
            _ => false,
        }
    }

    /// Looks at the threads that were relieved. Where one is no longer kept, the port is opened; where it is kept anew, the port there is shut.
    fn follow(&mut self) {
        for Kept { shift, seen, stall } in &mut self.kept {
            let now = see(shift);
            let before = std::mem::replace(seen, now);
            // The thread itself has a reference for as long as it runs.
            let has_ended = Arc::strong_count(shift) == 1;
            if before.place != now.place || has_ended || now.state == Some('S') {
                stall.take().into_iter().for_each(|stall| stall.end(&self.shared));
            } else if stall.is_none() && before == now {
                *stall = culprit(&self.shared, shift, now).map(|port| Stall::begin(&self.shared, &port));
                claim(stall.as_mut(), shift, seen);
            }
        }
        self.kept.retain(|kept| Arc::strong_count(&kept.shift) > 1 || kept.stall.is_some());
        self.shared.relief.set_kept(self.kept.len());
    }

    /// Has the detours of ports end whose outputs no thread has any more.
    fn end_diversions(&mut self) {
        if !self.has_diverted {
            return;
        }
        let (topology, _) = self.shared.topology.get();
        let mut diverted = topology.ports.iter().filter(|attached| attached.source.is_diverted()).peekable();
        self.has_diverted = diverted.peek().is_some();
        let may_end =
            |Attached { source, .. }: &Attached, port: &Arc<Port>| !source.is_shut() && !port.is_output_held();
        if diverted.any(|attached| attached.port().is_some_and(|port| may_end(attached, port))) {
            self.shared.topology.touch();
            self.shared.wake();
        }
    }

    #[cold]
    fn relieve(&mut self, state: &Arc<PollerState>, shift: Arc<Shift>, mut seen: Seen) {
        if self.kept.len() >= MOST_KEPT {
            return;
        }
        let shared = &self.shared;
        // Without a spare thread, the next look tries again.
        let Some(spare) = shared.relief.take_spare() else { return };
        // Before a topology is published without its ports being shut.
        shared.relief.set_kept(self.kept.len() + 1);
        let mut stall = culprit(shared, &shift, seen).map(|port| Stall::begin(shared, &port));
        self.has_diverted |= divert(shared, seen.place.touching);
        let Ok(successor) = spare.begin(Arc::clone(state)) else {
            stall.into_iter().for_each(|stall| stall.end(shared));
            return;
        };
        claim(stall.as_mut(), &shift, &mut seen);
        self.kept.push(Kept { shift, seen, stall });
        shared.relief.add_successor(successor);
        // A port in quarantine has been reported already.
        if state.number < shared.pollers {
            let port = port_at(shared, seen.place).map_or_else(Weak::new, |known| known.port);
            shared.relief.report(state.number, port);
            shared.report_fault();
        }
    }
}

/// Has this thread charge the port, unless the one that is kept does that already.
fn claim(stall: Option<&mut Stall>, shift: &Shift, seen: &mut Seen) {
    if let Some(stall) = stall
        && let Some(charges) = shift.charging.claim(seen.place.charges)
    {
        (stall.is_charged, seen.place.charges) = (true, charges);
    }
}

/// The port that a thread touches, or has used last.
fn port_at(shared: &Shared, place: Place) -> Option<Known> {
    shared.known.find(|known| match place.touching {
        0 => known.id == place.using,
        touching => Touching::names(touching, known.port.as_ptr()),
    })
}

/// `seen`: what two looks saw of a thread. Returns the port whose client's memory keeps that thread, if no other port can be the cause.
fn culprit(shared: &Shared, shift: &Shift, seen: Seen) -> Option<Known> {
    if seen.state != Some('D') {
        return None;
    }
    let port = port_at(shared, seen.place)?;
    let is_it = if seen.place.touching == 0 {
        shared.old.peek(&port.source, |source| source.is_held_by(shift))
    } else {
        // A frame that is delivered is copied from its sender's memory, unless the visit is examined.
        let is_examining = shift.is_examining.load(Ordering::Relaxed);
        shared.old.peek(&port.port, |port| is_examining || !port.is_output_held())
    };
    // A thread that is let go meanwhile gives the output back.
    (is_it == Some(true) && see(shift) == seen).then_some(port)
}

/// Has frames for the port whose output a kept thread has take a detour, as nobody may wait for it. Returns true if there is such a port. Those of
/// ports in quarantine and of shut ones take one already.
fn divert(shared: &Shared, touching: u64) -> bool {
    let (topology, _) = shared.topology.get();
    let named = |attached: &&Attached| attached.port().is_some_and(|port| Touching::names(touching, Arc::as_ptr(port)));
    let Some(attached) = topology.ports.iter().find(named).filter(|_| touching != 0) else { return false };
    let has_detour = attached.source.quarantine_poller().is_some() || attached.source.is_shut();
    let is_held = || !has_detour && attached.port().is_some_and(|port| port.is_output_held());
    if !is_held() {
        return false;
    }
    std::thread::sleep(HELD_FOR);
    if is_held() {
        quarantine::divert(attached);
    }
    attached.source.is_diverted()
}

fn see(shift: &Shift) -> Seen {
    let place = place_of(shift);
    Seen { place, state: if place.is_asleep { None } else { state_of(shift) } }
}

fn place_of(shift: &Shift) -> Place {
    Place {
        shift: shift.id,
        turns: shift.turns.load(Ordering::Relaxed),
        charges: shift.charging.begun(),
        using: shift.using.load(Ordering::Relaxed),
        touching: shift.touching.number(),
        is_asleep: shift.is_asleep.load(Ordering::Relaxed),
    }
}

/// The state of a thread (proc_pid_stat(5)): `D` in the kernel and not to be woken, `S` asleep, `R` with a processor or waiting for one.
fn state_of(shift: &Shift) -> Option<char> {
    let (mut path, mut stat) = ([0; 64], [0; 512]);
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/task/{}/stat", shift.thread.load(Ordering::Relaxed)).ok()?;
    let len = 64 - rest.len();
    let read = File::open(str::from_utf8(&path[..len]).ok()?).ok()?.read(&mut stat).ok()?;
    // The name before it may hold anything, and the state is all that is wanted of what follows.
    let name = stat[..read].windows(2).rposition(|pair| pair == b") ")?;
    Some(char::from(*stat.get(name + 2)?))
}
