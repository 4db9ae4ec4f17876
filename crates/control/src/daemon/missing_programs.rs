//! Switches without their programs, when the daemon starts and afterwards: which are logged, and when they are tried again.

use super::programs::{CannotLoad, is_same_program};
use super::refused::Refused;
use super::state::Daemon;

impl Daemon {
    /// The daemon goes on without these programs.
    pub(super) fn note_missing_programs(&mut self, failed: Vec<CannotLoad>) {
        if failed.is_empty() {
            return;
        }
        let places = self.running.places();
        for error in failed {
            let (switch, why) = (error.switch().clone(), error.to_string());
            if self.switches.get(&switch).is_some_and(|live| live.program().is_some()) {
                // It has got another one meanwhile.
                continue;
            }
            if self.programs.missing.note(error) {
                let place = places.of("switch", &switch);
                tracing::error!("switch {switch}{place} drops all frames: {why}; it is loaded when it is there");
            }
        }
    }

    /// Returns true if the daemon should try a missing program again.
    pub fn has_due_programs(&mut self) -> bool {
        let configured = &self.running.config.switches;
        self.programs.missing.has_due(|switch, keys| {
            let wanted = configured.get(switch).and_then(|switch| switch.forwarding.program());
            wanted.is_some_and(|wanted| is_same_program(wanted, keys))
        })
    }

    /// Loads the programs that were missing and may be there now.
    ///
    /// # Errors
    /// They have to be loaded first.
    pub fn retry_programs(&mut self) -> Result<Vec<String>, Refused> {
        self.programs.retry_missing();
        self.apply(self.running.config.clone(), "")
    }
}
