//! Forwarding programs of switches: which have to be loaded, and loading them without the daemon's lock.
//!
//! A change that needs a program is refused with [`WantedProgram`]s, before it has changed anything. `settle` has them loaded on a thread of
//! their own, and tries the change again with the [`ReadyProgram`]s. A program that is not acceptable ends the change.

#[cfg(not(feature = "programs"))]
mod absent;
#[cfg(feature = "programs")]
mod loaded;
mod loading;
mod missing;
mod ready;
mod seen;
mod wanted;

use std::collections::BTreeSet;
use std::sync::Arc;

use ringway_runtime::contain;

#[cfg(not(feature = "programs"))]
use absent as loaded;
pub use loaded::LoadedProgram;
use loaded::{Runtime, can_load};
pub use loading::Loading;
pub use missing::{Due, MissingPrograms};
pub use ready::{CannotLoad, ReadyProgram, WantedProgram, is_same_program};

use ringway_config::{Config, Name, ProgramKeys};
use seen::Seen;
use wanted::SharedRuntime;

/// The programs of a daemon.
#[derive(Debug, Default)]
pub struct Programs {
    runtime: SharedRuntime<Runtime>,
    ready: Vec<ReadyProgram>,
    /// Switches whose program the present change loads anew.
    again: BTreeSet<Name>,
    /// The present change loads programs anew whose files have changed.
    changed: bool,
    /// Programs of the configuration that are not loaded.
    pub missing: MissingPrograms,
}

impl Programs {
    /// Returns the runtime of all programs.
    pub fn runtime(&self) -> SharedRuntime<Runtime> {
        Arc::clone(&self.runtime)
    }

    /// Sets what was loaded for the next change.
    pub fn set_ready(&mut self, ready: Vec<ReadyProgram>) {
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
    can_load().map_err(|what| CannotLoad::new(switch.clone(), keys.clone(), Seen::now(keys, false), what.into()))
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
