//! What the keeper holds for the switch.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::closing::Closing;
use crate::message::Message;

/// Most names.
const NAMES_MOST: usize = 1 << 16;
/// Most bytes of notes.
const NOTES_MOST: usize = 64 << 20;

/// Descriptors and notes, by name.
#[derive(Debug)]
pub(super) struct Store {
    kept: BTreeMap<String, Kept>,
    notes: usize,
    files: usize,
    files_most: usize,
    closing: Closing,
}

#[derive(Debug)]
struct Kept {
    note: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Store {
    pub(super) fn new(files_most: usize) -> Self {
        Self { kept: BTreeMap::new(), notes: 0, files: 0, files_most, closing: Closing::default() }
    }

    /// Holds these, instead of what has the name. `whole`: none is missing; otherwise nothing has the name any more. Returns false if it is more than may be held.
    pub(super) fn keep(&mut self, name: String, note: Vec<u8>, files: Vec<OwnedFd>, whole: bool) -> bool {
        self.release(&name, None);
        if !whole {
            tracing::warn!("no descriptors are left for {name}: it will not outlive the switch");
            self.closing.close(files, None);
            return true;
        }
        (self.notes, self.files) = (self.notes + note.len(), self.files + files.len());
        let held = self.files + self.closing.unclosed();
        if self.kept.len() >= NAMES_MOST || self.notes > NOTES_MOST || held > self.files_most {
            return false;
        }
        self.kept.insert(name, Kept { note, files });
        true
    }

    /// Closes what has this name, and tells the switch then, if it wants to know.
    pub(super) fn release(&mut self, name: &str, tell: Option<(u64, Arc<OwnedFd>)>) {
        let kept = self.kept.remove(name);
        let files = kept.map_or_else(Vec::new, |Kept { note, files }| {
            (self.notes, self.files) = (self.notes - note.len(), self.files - files.len());
            files
        });
        self.closing.close(files, tell);
    }

    /// A message for each name. The files are beside it.
    pub(super) fn left(&self) -> impl Iterator<Item = Message> {
        self.kept.iter().map(|(name, kept)| Message::Left { name: name.clone(), note: kept.note.clone() })
    }

    /// The files of a name. None if it was released meanwhile.
    pub(super) fn files(&self, name: &str) -> Vec<BorrowedFd<'_>> {
        self.kept.get(name).map_or_else(Vec::new, |kept| kept.files.iter().map(AsFd::as_fd).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(number: usize) -> Vec<OwnedFd> {
        (0..number).map(|_| std::fs::File::open("/dev/null").expect("a file").into()).collect()
    }

    #[test]
    fn a_name_has_what_was_kept_last() {
        let mut store = Store::new(100);
        assert!(store.keep("a".into(), vec![1], files(2), true));
        assert!(store.keep("a".into(), vec![2], files(3), true));
        assert!(store.keep("b".into(), vec![3], files(0), true));
        assert_eq!((store.files("a").len(), store.files, store.notes), (3, 3, 2));
        store.release("a", None);
        assert_eq!((store.files("a").len(), store.files, store.notes), (0, 0, 1));
        let left: Vec<_> = store.left().collect();
        assert_eq!(left, [Message::Left { name: "b".into(), note: vec![3] }]);
    }

    #[test]
    fn what_is_not_whole_is_not_kept_and_what_was_there_is_old() {
        let mut store = Store::new(100);
        assert!(store.keep("a".into(), vec![1], files(2), true));
        assert!(store.keep("a".into(), vec![2], files(1), false));
        assert_eq!(store.left().count(), 0);
        assert_eq!((store.files, store.notes), (0, 0));
    }

    #[test]
    fn a_switch_may_not_keep_more_than_there_is_room_for() {
        let mut store = Store::new(4);
        assert!(store.keep("a".into(), Vec::new(), files(4), true));
        assert!(!store.keep("b".into(), Vec::new(), files(1), true));
        let mut store = Store::new(4);
        let names = NOTES_MOST / crate::NOTE_MOST;
        assert!((0..names).all(|name| store.keep(name.to_string(), vec![0; crate::NOTE_MOST], files(0), true)));
        assert!(!store.keep("one more".into(), vec![0], files(0), true));
    }
}
