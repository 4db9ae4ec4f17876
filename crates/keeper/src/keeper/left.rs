//! What predecessors have left, told to a switch.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::store::Store;
use super::switch::Switch;
use crate::message::{Entry, Message, send};

/// Most bytes and files of a message about several names. The switch takes what it has while the next one is made.
const SEVERAL_BYTES: usize = 16 << 10;
const SEVERAL_FILES: usize = 96;

/// Sends what was left, as much as there is room for, with the files of `only` these names, if it says so, and at most `names` of them in a message. Returns false if it
/// has to be tried again after a while.
pub(super) fn send_left(
    store: &Store,
    switch: &Switch,
    unsent: &mut VecDeque<Message>,
    only: Option<&[&str]>,
    names: usize,
) -> bool {
    let files_of = |name: &str| match only {
        Some(only) if !only.contains(&name) => Vec::new(),
        _ => store.files(name),
    };
    while let Some(message) = unsent.front() {
        let (several, mut files, count) = several(unsent, files_of, names);
        let message = several.as_ref().unwrap_or(message);
        // What a switch does is no matter to a process that only looks.
        if matches!(message, Message::Begin { .. }) && only.is_none() {
            files.extend(store.page().map(AsFd::as_fd));
        }
        match send(&*switch.socket, message, &files, SendFlags::DONTWAIT) {
            Ok(()) => drop(unsent.drain(..count)),
            Err(Errno::AGAIN) => return true,
            // ETOOMANYREFS: too many descriptors are on their way.
            Err(Errno::TOOMANYREFS | Errno::NOMEM | Errno::NOBUFS) => return false,
            // The switch has ended.
            Err(_) => {
                unsent.clear();
                return true;
            }
        }
    }
    true
}

/// Joins the first messages about names into one, with the files of all: both ends wake for each message. `None`: the first message is another one. Returns for how many it
/// stands.
fn several<'s>(
    unsent: &VecDeque<Message>,
    files_of: impl Fn(&str) -> Vec<BorrowedFd<'s>>,
    names: usize,
) -> (Option<Message>, Vec<BorrowedFd<'s>>, usize) {
    let (mut entries, mut files, mut bytes) = (Vec::new(), Vec::new(), 0);
    for message in unsent.iter().take(names) {
        let Message::Left { name, note } = message else { break };
        let own = files_of(name);
        let entry = Entry { name: name.clone(), note: note.clone(), files: own.len() as u8 };
        bytes += entry.bytes();
        let is_full = bytes > SEVERAL_BYTES || files.len() + own.len() > SEVERAL_FILES;
        if is_full && !entries.is_empty() {
            break;
        }
        entries.push(entry);
        files.extend(own);
    }
    let count = entries.len().max(1);
    // One alone goes as it is.
    ((count > 1).then_some(Message::Several(entries)), files, count)
}
