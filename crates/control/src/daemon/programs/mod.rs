//! Forwarding programs of switches: which have to be loaded, and loading them without the daemon's lock.
//!
//! A change that needs a program is refused with [`WantedProgram`]s, before it has changed anything. `settle` has them loaded on a thread of
//! their own, and tries the change again with the [`ReadyProgram`]s. A program that is not acceptable ends the change.

#[cfg(not(feature = "programs"))]
mod absent;
#[cfg(feature = "programs")]
mod loaded;
mod wanted;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringway_engine::contain;

#[cfg(not(feature = "programs"))]
use absent as loaded;
pub use loaded::LoadedProgram;
use loaded::{Runtime, can_load, load_one};
use wanted::Wanted;

use crate::config::{Config, Name, ProgramKeys};

/// A program to be loaded.
pub type WantedProgram = Wanted<LoadedProgram, Runtime>;

/// A program that was loaded for a change.
#[derive(Clone, Debug)]
pub struct ReadyProgram {
    switch: Name,
    keys: ProgramKeys,
    pollers: usize,
    /// What it replaces, and whose state it may have.
    before: Option<LoadedProgram>,
    program: LoadedProgram,
    runtime: Arc<Runtime>,
}

impl ReadyProgram {
    /// Returns true if it is for this switch.
    pub fn is_for(&self, switch: &Name) -> bool {
        self.switch == *switch
    }

    /// Returns true if it is what this switch is to have.
    fn is(&self, switch: &Name, keys: &ProgramKeys, pollers: usize) -> bool {
        self.switch == *switch && is_same_program(&self.keys, keys) && self.pollers == pollers
    }

    /// Returns the program, if the switch still has the one that it replaces: while it was loaded, the switch may have got another, newer one.
    pub fn instead_of(&self, present: Option<&LoadedProgram>) -> Option<&LoadedProgram> {
        let is_present = match (&self.before, present) {
            (Some(before), Some(present)) => before.is_same(present),
            (before, present) => before.is_none() && present.is_none(),
        };
        is_present.then_some(&self.program)
    }
}

/// Returns true if both settings name the same program, started with the same text.
pub fn is_same_program(a: &ProgramKeys, b: &ProgramKeys) -> bool {
    (&a.program, &a.config, &a.config_file) == (&b.program, &b.config, &b.config_file)
}

/// A program cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the program {path} of switch {switch}: {what}")]
pub struct CannotLoad {
    switch: Name,
    path: String,
    what: String,
}

/// The programs of a daemon.
#[derive(Debug, Default)]
pub struct Programs {
    runtime: Option<Arc<Runtime>>,
    ready: Vec<ReadyProgram>,
    /// Switches whose program the present change loads anew.
    again: BTreeSet<Name>,
    /// The present change loads programs anew whose files have changed.
    changed: bool,
}

impl Programs {
    /// Returns the runtime of all programs, if it was started.
    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        self.runtime.clone()
    }

    /// Sets what was loaded for the next change.
    pub fn set_ready(&mut self, ready: Vec<ReadyProgram>) {
        if let Some(first) = ready.first() {
            self.runtime.get_or_insert_with(|| Arc::clone(&first.runtime));
        }
        self.ready = ready;
    }

    /// Ends a change. Returns what was loaded for it.
    pub fn take_ready(&mut self) -> Vec<ReadyProgram> {
        (self.again, self.changed) = (BTreeSet::new(), false);
        std::mem::take(&mut self.ready)
    }

    /// Returns what was loaded for this change.
    pub fn ready(&self, switch: &Name, keys: &ProgramKeys, pollers: usize) -> Option<&ReadyProgram> {
        self.ready.iter().find(|ready| ready.is(switch, keys, pollers))
    }

    /// The present change loads the program of a switch anew.
    pub fn reload(&mut self, switch: &Name) {
        self.again.insert(switch.clone());
    }

    /// The present change loads programs anew whose files have changed.
    pub fn reload_changed(&mut self) {
        self.changed = true;
    }

    /// Returns true if the present change loads the program of this switch anew.
    pub fn is_reloaded(&self, switch: &Name) -> bool {
        self.again.contains(switch)
    }

    /// Returns true if the present change loads programs anew whose files have changed.
    pub fn reloads_changed(&self) -> bool {
        self.changed
    }
}

/// Says whether programs can be loaded at all, if a switch of this configuration has one.
///
/// # Errors
/// What is missing.
pub fn check(config: &Config) -> Result<(), CannotLoad> {
    let mut programs = config.switches.iter().filter_map(|(name, switch)| Some((name, switch.forwarding.program()?)));
    let Some((switch, keys)) = programs.next() else { return Ok(()) };
    let failed = |what| CannotLoad { switch: switch.clone(), path: keys.program.display().to_string(), what };
    can_load().map_err(failed)
}

/// Sets its flag when it is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Loads programs on a thread of their own. Dropping the future ends the compiler.
///
/// # Errors
/// One cannot be loaded.
pub async fn load(wanted: Vec<WantedProgram>) -> Result<Vec<ReadyProgram>, CannotLoad> {
    let (done, loaded) = tokio::sync::oneshot::channel();
    let first = wanted.first().map(|wanted| (wanted.switch.clone(), wanted.keys.program.display().to_string()));
    let stop = Stop(Arc::default());
    let is_gone = Arc::clone(&stop.0);
    let thread = std::thread::Builder::new().name("load-program".to_owned()).spawn(move || {
        // Pollers on the same processor go first. The compiler inherits it.
        let _ = rustix::process::nice(10);
        let _ = done.send(load_here(wanted, &is_gone));
    });
    let failed = |what: String| {
        let (switch, path) = first.clone().expect("a change wants programs, if it wants any");
        CannotLoad { switch, path, what }
    };
    match thread {
        Err(error) => Err(failed(format!("cannot start a thread: {error}"))),
        Ok(_) => loaded.await.unwrap_or_else(|_| Err(failed("the thread that loads it has failed".to_owned()))),
    }
}

/// Gives a program a message, on a thread of its own: it waits for pollers.
///
/// # Errors
/// The program does not take it.
pub async fn tell(program: LoadedProgram, message: String) -> Result<(), CannotTell> {
    let (done, told) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("tell-program".to_owned()).spawn(move || {
        let _ = done.send(contain(|| program.tell(&message)));
    });
    let failed = |what: String| Err(CannotTell(what));
    match thread {
        Err(error) => failed(format!("cannot start a thread: {error}")),
        Ok(_) => match told.await {
            Ok(Ok(told)) => told.map_err(CannotTell),
            Ok(Err(place)) => failed(format!("a defect of Ringway, please report it: it failed at {place}")),
            Err(_) => failed("the thread that tells it has failed".to_owned()),
        },
    }
}

/// A program did not take a message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotTell(String);

/// Loads programs. Takes long.
fn load_here(wanted: Vec<WantedProgram>, stop: &AtomicBool) -> Result<Vec<ReadyProgram>, CannotLoad> {
    let mut runtime = wanted.iter().find_map(|wanted| wanted.runtime.clone());
    let mut ready = Vec::new();
    for wanted in wanted {
        let loaded = contain(|| load_one(&wanted, &mut runtime, stop))
            .unwrap_or_else(|place| Err(format!("a defect of Ringway, please report it: it failed at {place}")));
        let Wanted { switch, keys, pollers, before, .. } = wanted;
        match (loaded, &runtime) {
            (Ok(program), Some(runtime)) => {
                ready.push(ReadyProgram { switch, keys, pollers, before, program, runtime: Arc::clone(runtime) });
            }
            (Ok(_), None) => {}
            (Err(what), _) => return Err(CannotLoad { switch, path: keys.program.display().to_string(), what }),
        }
    }
    Ok(ready)
}
