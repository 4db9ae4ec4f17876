//! Programs that switches of the configuration have not: these switches drop all frames. A program is tried again when one of its files is
//! another one, or when there is a compiler; when an administrator asks for it; and each minute, unless these files can never be loaded. The
//! files are looked at by the threads that load programs: a look can last.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_api::program::ProgramStatus;
use ringway_config::{Name, ProgramKeys};

use super::ready::{CannotLoad, is_same_program};
use super::seen::Seen;

/// The time after which a program is tried again whose files have not changed.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// A program that a switch has not.
#[derive(Debug)]
struct Missing {
    keys: Box<ProgramKeys>,
    /// Why it could not be loaded when it was tried last. `None`: it was not tried before.
    why: Option<String>,
    /// The last try in vain.
    tried: Option<Tried>,
    /// It is being loaded, or its files are looked at.
    is_loading: bool,
}

/// A try in vain.
#[derive(Debug)]
struct Tried {
    at: Instant,
    seen: Box<Seen>,
    is_final: bool,
    /// An administrator has asked for another one since.
    is_asked: bool,
}

/// Whether to try a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// It is being tried.
    No,
    /// If what it needs is not what it was.
    IfOther(Box<Seen>),
    /// In any case.
    Yes,
}

/// The programs that switches lack, by switch, with their last tries. A program without an entry is tried at once.
#[derive(Debug, Default)]
pub struct MissingPrograms(BTreeMap<Name, Missing>);

impl MissingPrograms {
    /// Says whether to try this program now. Looks at no file.
    pub fn due(&self, switch: &Name, keys: &ProgramKeys) -> Due {
        match self.get(switch, keys) {
            Some(Missing { is_loading: true, .. }) => Due::No,
            Some(Missing { tried: Some(tried), .. }) => {
                let is_time = !tried.is_final && tried.at.elapsed() >= AGAIN_AFTER;
                if is_time || tried.is_asked { Due::Yes } else { Due::IfOther(tried.seen.clone()) }
            }
            _ => Due::Yes,
        }
    }

    /// An administrator asks for another try of each.
    pub fn ask(&mut self) {
        self.0.values_mut().filter_map(|missing| missing.tried.as_mut()).for_each(|tried| tried.is_asked = true);
    }

    /// Returns true if this program is being loaded, or could not be.
    pub fn is_known(&self, switch: &Name, keys: &ProgramKeys) -> bool {
        self.get(switch, keys).is_some()
    }

    /// The program is being loaded, or its files are looked at.
    pub fn begin(&mut self, switch: &Name, keys: &ProgramKeys) {
        if self.get(switch, keys).is_none() {
            let missing = Missing { keys: Box::new(keys.clone()), why: None, tried: None, is_loading: false };
            self.0.insert(switch.clone(), missing);
        }
        self.set_loading(switch, true);
    }

    /// What the program needs is as it was at the last try.
    pub fn note_unchanged(&mut self, switch: &Name, keys: &ProgramKeys) {
        if self.get(switch, keys).is_some() {
            self.set_loading(switch, false);
        }
    }

    fn set_loading(&mut self, switch: &Name, is_loading: bool) {
        if let Some(missing) = self.0.get_mut(switch) {
            missing.is_loading = is_loading;
        }
    }

    /// The program could not be loaded. Returns true if the reason is a new one.
    pub fn note(&mut self, failed: CannotLoad) -> bool {
        let why = failed.to_string();
        let CannotLoad { switch, keys, seen, is_final, .. } = failed;
        let is_new = self.why(&switch, &keys) != Some(&why);
        let tried = Tried { at: Instant::now(), seen, is_final, is_asked: false };
        self.0.insert(switch, Missing { keys, why: Some(why), tried: Some(tried), is_loading: false });
        is_new
    }

    /// The switch has its program, or another try is worth it.
    pub fn forget(&mut self, switch: &Name) {
        self.0.remove(switch);
    }

    /// Forgets all but those that `are_missing` says yes of.
    pub fn keep(&mut self, are_missing: impl Fn(&Name, &ProgramKeys) -> bool) {
        self.0.retain(|switch, missing| are_missing(switch, &missing.keys));
    }

    /// Returns why the program of a switch could not be loaded. `None`: it is being loaded for the first time.
    pub fn why(&self, switch: &Name, keys: &ProgramKeys) -> Option<&str> {
        self.get(switch, keys)?.why.as_deref()
    }

    /// Returns the status of a program that a switch has not.
    pub fn status(&self, switch: &Name, keys: &ProgramKeys) -> ProgramStatus {
        let why = self.why(switch, keys);
        let detail = why.map(|why| format!("{why}; the switch drops all frames until it can be loaded"));
        let state = if why.is_some() { "failed" } else { "loading" };
        ProgramStatus { state: state.to_owned(), detail, ..ProgramStatus::default() }
    }

    fn get(&self, switch: &Name, keys: &ProgramKeys) -> Option<&Missing> {
        self.0.get(switch).filter(|missing| is_same_program(&missing.keys, keys))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::wanted::NotLoaded;
    use super::*;

    fn name() -> Name {
        "lan0".parse().unwrap()
    }

    fn keys(program: PathBuf) -> ProgramKeys {
        ProgramKeys { program, ..ProgramKeys::default() }
    }

    /// What is known after a try in vain, a minute ago.
    fn tried_before(keys: &ProgramKeys, is_final: bool) -> MissingPrograms {
        let why = NotLoaded { what: "why".to_owned(), is_final };
        let mut missing = MissingPrograms::default();
        missing.note(CannotLoad::new(name(), keys.clone(), Seen::now(keys, true), why));
        let tried = missing.0.get_mut(&name()).unwrap().tried.as_mut().unwrap();
        tried.at = Instant::now().checked_sub(AGAIN_AFTER).unwrap();
        missing
    }

    fn is_due(missing: &MissingPrograms, keys: &ProgramKeys) -> bool {
        match missing.due(&name(), keys) {
            Due::No => false,
            Due::IfOther(seen) => *seen != Seen::now(keys, true),
            Due::Yes => true,
        }
    }

    #[test]
    fn what_an_administrator_asks_for_is_tried_once_more_and_then_only_if_it_changes() {
        let keys = keys("/nowhere".into());
        let mut missing = tried_before(&keys, true);
        assert!(!is_due(&missing, &keys));
        missing.begin(&name(), &keys);
        missing.ask();
        assert_eq!(missing.due(&name(), &keys), Due::No, "the look goes on");
        missing.note_unchanged(&name(), &keys);
        assert_eq!(missing.due(&name(), &keys), Due::Yes);
        let why = NotLoaded { what: "why".to_owned(), is_final: true };
        missing.note(CannotLoad::new(name(), keys.clone(), Seen::now(&keys, true), why));
        assert!(!is_due(&missing, &keys));
    }

    #[test]
    fn files_that_can_never_be_loaded_are_tried_again_when_one_is_another_and_others_each_minute() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path().join("a.wasm"));
        fs::write(&keys.program, "one").unwrap();
        assert!(is_due(&tried_before(&keys, false), &keys));
        let changes: [&dyn Fn(); 4] = [
            &|| fs::write(&keys.program, "longer").unwrap(),
            &|| {
                fs::File::options()
                    .append(true)
                    .open(&keys.program)
                    .unwrap()
                    .set_modified(std::time::UNIX_EPOCH)
                    .unwrap()
            },
            &|| {
                // The same bytes and time, in another file.
                let (new, modified) =
                    (dir.path().join("new"), fs::metadata(&keys.program).unwrap().modified().unwrap());
                fs::copy(&keys.program, &new).unwrap();
                fs::File::options().append(true).open(&new).unwrap().set_modified(modified).unwrap();
                fs::rename(&new, &keys.program).unwrap();
            },
            &|| fs::remove_file(&keys.program).unwrap(),
        ];
        for change in changes {
            let missing = tried_before(&keys, true);
            assert!(!is_due(&missing, &keys), "a minute changes nothing");
            change();
            assert!(is_due(&missing, &keys));
        }
    }

    #[test]
    fn a_change_while_a_program_was_loaded_is_not_missed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path().join("a.wasm"));
        let seen = Seen::now(&keys, true);
        fs::write(&keys.program, "it is there now").unwrap();
        let mut missing = MissingPrograms::default();
        let why = NotLoaded { what: "it is not there".to_owned(), is_final: true };
        missing.note(CannotLoad::new(name(), keys.clone(), seen, why));
        assert!(is_due(&missing, &keys));
    }

    #[test]
    fn a_program_is_loaded_once_at_a_time_and_one_of_which_nothing_is_known_is_tried() {
        let (one, other) = (keys("/one".into()), keys("/other".into()));
        let mut missing = MissingPrograms::default();
        assert!(is_due(&missing, &one));
        missing.begin(&name(), &one);
        assert!(!is_due(&missing, &one) && is_due(&missing, &other));
        assert_eq!(missing.status(&name(), &one).state, "loading");
        let failed = || CannotLoad::new(name(), one.clone(), Seen::now(&one, true), "why".to_owned().into());
        assert!(missing.note(failed()));
        assert_eq!(missing.status(&name(), &one).state, "failed");
        missing.begin(&name(), &one);
        assert_eq!(missing.status(&name(), &one).state, "failed", "the reason of the last try stays");
        assert!(!missing.note(failed()), "the same reason is no news");
    }
}
