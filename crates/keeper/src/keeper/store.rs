//! What the keeper holds for the switch.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::closing::Closing;
use crate::message::Message;
use crate::page;

/// Most names.
const NAMES_MOST: usize = 1 << 16;
/// Most bytes of notes.
const NOTES_MOST: usize = 64 << 20;

/// Descriptors and notes, by name.
#[derive(Debug)]
pub(super) struct Store {
    /// The [page](crate::page), if the kernel had memory for it.
    page: Option<OwnedFd>,
    kept: BTreeMap<String, Kept>,
    notes: usize,
    files: usize,
    files_most: usize,
    /// How often there was no room.
    refused: u64,
    /// By the beginnings of names; the last is for all others.
    closing: [(&'static str, Closing); 5],
}

#[derive(Debug)]
struct Kept {
    note: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Store {
    pub(super) fn new(files_most: usize) -> Self {
        let failed = |why| tracing::warn!("no port is blamed for a death of the switch: {why}");
        Self {
            page: page::create().map_err(failed).ok(),
            kept: BTreeMap::new(),
            notes: 0,
            files: 0,
            files_most,
            refused: 0,
            closing: ["tap/", "xdp/", "packet/", "process/", ""].map(|kind| (kind, Closing::default())),
        }
    }

    /// Has this page instead of its own.
    pub(super) fn use_page(&mut self, page: Option<OwnedFd>) {
        self.page = page;
    }

    /// Returns true if it is waited for some closes.
    pub(super) fn is_closing(&self) -> bool {
        self.unclosed() > 0
    }

    /// Holds these, instead of what has the name. `whole`: none is missing. What is not whole, or is more than there is room for, is not held, and
    /// nothing has the name any more.
    pub(super) fn keep(&mut self, name: String, note: Vec<u8>, files: Vec<OwnedFd>, whole: bool) {
        self.release(&name, None);
        let has_room = self.kept.len() < NAMES_MOST
            && self.notes + note.len() <= NOTES_MOST
            && self.files + self.unclosed() + files.len() <= self.files_most;
        if !whole || !has_room {
            self.refused += 1;
            // The name is the switch's word, and so is how often it comes.
            if self.refused.is_power_of_two() {
                tracing::warn!(
                    "there is no room for {name:?}, number {}: it will not outlive the switch",
                    self.refused
                );
            }
            return self.close(&name, files, None);
        }
        (self.notes, self.files) = (self.notes + note.len(), self.files + files.len());
        self.kept.insert(name, Kept { note, files });
    }

    /// Closes files that came with a message that has none.
    pub(super) fn refuse(&self, files: Vec<OwnedFd>) {
        self.close("", files, None);
    }

    fn unclosed(&self) -> usize {
        self.closing.iter().map(|(_, closing)| closing.unclosed()).sum()
    }

    /// Returns true if clients keep so many descriptors from being closed that the keeper would soon have none left for itself.
    pub(super) fn is_overrun(&self) -> bool {
        self.files + self.unclosed() > self.files_most + self.files_most / 14
    }

    /// Closes files of a name on threads of its kind: what holds up the closes of clients holds up no others.
    fn close(&self, name: &str, files: Vec<OwnedFd>, tell: Option<(u64, Arc<OwnedFd>)>) {
        let of = self.closing.iter().find(|(kind, _)| name.starts_with(kind));
        of.map_or(&self.closing[self.closing.len() - 1].1, |(_, closing)| closing).close(files, tell);
    }

    /// Closes what has this name, and tells the switch then, if it wants to know.
    pub(super) fn release(&mut self, name: &str, tell: Option<(u64, Arc<OwnedFd>)>) {
        let kept = self.kept.remove(name);
        let files = kept.map_or_else(Vec::new, |Kept { note, files }| {
            (self.notes, self.files) = (self.notes - note.len(), self.files - files.len());
            files
        });
        self.close(name, files, tell);
    }

    /// The page in which the switch notes whose port its threads serve.
    pub(super) fn page(&self) -> Option<&OwnedFd> {
        self.page.as_ref()
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
        store.keep("a".into(), vec![1], files(2), true);
        store.keep("a".into(), vec![2], files(3), true);
        store.keep("b".into(), vec![3], files(0), true);
        assert_eq!((store.files("a").len(), store.files, store.notes), (3, 3, 2));
        store.release("a", None);
        assert_eq!((store.files("a").len(), store.files, store.notes), (0, 0, 1));
        let left: Vec<_> = store.left().collect();
        assert_eq!(left, [Message::Left { name: "b".into(), note: vec![3] }]);
    }

    #[test]
    fn what_is_not_whole_is_not_kept_and_what_was_there_is_old() {
        let mut store = Store::new(100);
        store.keep("a".into(), vec![1], files(2), true);
        store.keep("a".into(), vec![2], files(1), false);
        assert_eq!(store.left().count(), 0);
        assert_eq!((store.files, store.notes), (0, 0));
    }

    #[test]
    fn what_there_is_no_room_for_is_not_kept_and_takes_no_room() {
        let mut store = Store::new(4);
        store.keep("a".into(), Vec::new(), files(3), true);
        for _ in 0..3 {
            store.keep("b".into(), Vec::new(), files(2), true);
            assert_eq!((store.left().count(), store.files), (1, 3));
        }
        ringway_testing::until("all are closed", || store.unclosed() == 0);
        store.keep("b".into(), Vec::new(), files(1), true);
        assert_eq!((store.left().count(), store.files), (2, 4));
        let mut store = Store::new(4);
        let names = NOTES_MOST / crate::NOTE_MOST;
        (0..names).for_each(|name| store.keep(name.to_string(), vec![0; crate::NOTE_MOST], files(0), true));
        store.keep("one more".into(), vec![0], files(0), true);
        assert_eq!((store.left().count(), store.notes), (names, NOTES_MOST));
    }
}
