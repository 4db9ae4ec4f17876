//! Switches without their programs, when the daemon starts and afterwards: which are logged, when they are tried again, and how they get them.
//!
//! A switch lacks its program if it is configured with one and has none. Nothing else says so: a switch that is not among
//! [`MissingPrograms`](super::programs::MissingPrograms) is tried like one that is due.

use ringway_config::{Name, ProgramKeys};

use super::programs::{CannotLoad, Due, ReadyProgram, WantedProgram, is_same_program};
use super::state::Daemon;

impl Daemon {
    /// Returns true if a switch is to have this program, and has none.
    pub(super) fn lacks(&self, switch: &Name, keys: &ProgramKeys) -> bool {
        let config = if self.is_starting { self.running.at_start() } else { &self.running.config };
        let wanted = config.switches.get(switch).and_then(|switch| switch.forwarding.program());
        wanted.is_some_and(|wanted| is_same_program(wanted, keys))
            && self.switches.get(switch).is_none_or(|live| live.program().is_none())
    }

    /// The daemon goes on without this program, which could not be loaded.
    pub(super) fn note_missing_program(&mut self, failed: CannotLoad) {
        let (switch, why) = (failed.switch().clone(), failed.to_string());
        if self.programs.missing.note(failed) {
            let place = self.running.places().of("switch", &switch);
            tracing::error!("switch {switch}{place} drops all frames: {why}; it is loaded when it is there");
        }
    }

    /// Returns the programs that are missing, with what their files must not be for a try. They are being loaded from then on, until
    /// [`Daemon::bring`] has the result. Looks at no file: an administrator's files can be on a file system that does not answer.
    pub fn due_programs(&mut self) -> Vec<WantedProgram> {
        let pollers = self.running.config.engine.pollers();
        let configured = self.running.config.switches.iter();
        let programs = configured.filter_map(|(name, switch)| Some((name, switch.forwarding.program()?)));
        let due = programs.filter(|(name, keys)| self.lacks(name, keys)).filter_map(|(name, keys)| {
            let unless_seen = match self.programs.missing.due(name, keys) {
                Due::No => return None,
                Due::IfOther(seen) => Some(seen),
                Due::Yes => None,
            };
            Some(WantedProgram { unless_seen, ..self.wanted_program(name, keys, pollers) })
        });
        let due: Vec<_> = due.collect();
        for WantedProgram { switch, keys, .. } in &due {
            self.programs.missing.begin(switch, keys);
        }
        due
    }

    /// A switch gets its program, which was missing, or it could still not be loaded.
    pub fn bring(&mut self, loaded: Result<ReadyProgram, CannotLoad>) {
        let (switch, keys) = match &loaded {
            Ok(ready) => (ready.switch(), ready.keys()),
            Err(why) => (why.switch(), why.keys()),
        };
        if let Err(why) = &loaded
            && why.is_unchanged()
        {
            return self.programs.missing.note_unchanged(switch, keys);
        }
        if !self.lacks(switch, keys) {
            tracing::info!("switch {switch} has got another program, or none, while its first one was loaded");
            return;
        }
        let ready = match loaded {
            Ok(ready) => ready,
            Err(why) => return self.note_missing_program(why),
        };
        let switch = ready.switch();
        self.programs.missing.forget(switch);
        let Some(live) = self.switches.get_mut(switch) else { return };
        // For other pollers it is loaded once more.
        if let Some(program) = ready.for_pollers(self.running.config.engine.pollers()) {
            live.set_program(program.clone());
            self.publish();
            tracing::info!("switch {switch} forwards: its program is loaded");
        }
    }
}
