//! What commands changed: shown, dropped, and kept in the state file.

use std::collections::BTreeMap;

use ringway_api::config::{ChangedKey, ChangedSection, ConfigStatus};
use ringway_config::changes::{Change, SetAside, toml};
use ringway_config::keys::Mistake;

use super::kept::StateWriter;
use super::refused::Refused;
use super::state::Daemon;
use crate::state_file::{KeptState, StateFile};

impl Daemon {
    /// Keeps what commands change in this file, from which `kept` was read.
    pub fn keep_state_in(&mut self, file: StateFile, kept: KeptState) {
        self.state = Some(StateWriter::new(file, (!kept.is_elsewhere).then_some(kept.changes)));
        self.state_lost = kept.lost;
    }

    /// Takes what commands changed out of the start, which failed for this reason. Returns false if there was nothing.
    pub(super) fn start_without_changes(&mut self, why: &str) -> bool {
        let is_any = self.running.start_without_changes(why);
        if is_any {
            tracing::error!("the switch cannot start with what commands changed, and starts without it: {why}");
        }
        is_any
    }

    /// Begins to write what commands changed, if it differs from what was written last. Returns the number of the state that is
    /// written.
    pub(super) fn keep_changes(&mut self) -> Option<u64> {
        if self.is_starting || self.is_ending {
            return None;
        }
        self.running.forget_replaced();
        let changes = self.running.changes();
        let Self { state, tasks, .. } = self;
        state.as_mut()?.keep(changes, || tasks.begin())
    }

    /// Tries again to write what could not be written.
    pub fn write_state_again(&mut self) {
        let Self { state, tasks, .. } = self;
        if let Some(state) = state {
            state.try_again(|| tasks.begin());
        }
    }

    /// Returns why the state file has neither the state of this number nor a newer one.
    pub(super) fn unwritten_state(&self, number: u64) -> Option<String> {
        self.state.as_ref()?.unwritten(number)
    }

    /// Returns why the state file does not have what commands changed.
    pub(super) fn state_failure(&self) -> Option<String> {
        self.state.as_ref()?.failure()
    }

    /// Returns the running configuration, and what commands changed of the file.
    pub fn config(&self) -> ConfigStatus {
        let (in_force, set_aside) = (self.running.changes_in_force(), self.running.set_aside());
        let active = in_force.0.iter().map(|(id, change)| (id, change, None));
        let inactive = set_aside.iter().map(|SetAside { id, change, why }| (id, change, Some(why.clone())));
        let section = |(id, change, not_in_force): (&ringway_config::changes::Id, &Change, _)| ChangedSection {
            section: id.part.as_str().to_owned(),
            name: id.name.to_string(),
            change: change.word().to_owned(),
            keys: keys(change),
            not_in_force,
        };
        ConfigStatus {
            running: toml::running(&self.running.config, &in_force, set_aside),
            changed: toml::changed(&in_force, set_aside),
            changes: active.chain(inactive).map(section).collect(),
        }
    }

    /// Drops what commands changed: the configuration is that of the file, as it was read last.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn reset_config(&mut self) -> Result<Vec<String>, Refused> {
        let mut steps = self.apply(self.running.from_file().clone(), "")?;
        for aside in self.running.take_set_aside() {
            steps.push(format!("dropped what a command {} and was not in force: {}", aside.change.word(), aside.id));
        }
        self.state_lost = None;
        Ok(steps)
    }

    /// Returns what there is to say of the changes of commands: what is lost, what is not in force, and what cannot be written.
    pub(super) fn state_warnings(&self) -> impl Iterator<Item = Mistake> {
        let warning =
            |key: String, what: String, right: &str| Mistake { key, span: None, what, right: right.to_owned() };
        let failure = self.state_failure().map(|why| {
            let what = format!("what commands changed is lost if the switch ends now: {why}");
            warning("state.file".to_owned(), what, "tried again every second")
        });
        let right = "\"ringway config reset\" ends this warning, and drops what commands changed since";
        let lost = self.state_lost.clone().map(|lost| warning("state.file".to_owned(), lost, right));
        let set_aside = self.running.set_aside().iter().map(move |SetAside { id, change, why }| {
            let what = format!("a command {} it, which is not in force: {why}", change.word());
            let right = "it is tried again when the file is read again; \"ringway config reset\" drops it";
            warning(format!("{}.{}", id.part.as_str(), id.name), what, right)
        });
        failure.into_iter().chain(lost).chain(set_aside).collect::<Vec<_>>().into_iter()
    }
}

fn keys(change: &Change) -> BTreeMap<String, ChangedKey> {
    let value = |value: Option<&serde_json::Value>| value.cloned().unwrap_or_default();
    let keys = change.keys().into_iter();
    keys.map(|(key, file, now)| (key.to_owned(), ChangedKey { file: value(file), now: value(now) })).collect()
}
