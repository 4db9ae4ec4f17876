//! Whose port each thread serves, in a page of memory that outlives the process ([`ringway_keeper::page`]): a successor reads there which
//! port the thread served that died, or that hung.
//!
//! - `page`: the page of this process, and its slots and entries.
//! - `life`: the word by which the keeper learns that the process has ended.
//! - `crash`: the handler of signals that end the process by its own doing.
//!
//! A poller has a [`Note`] of its own. Any other thread that serves one port for a while says so with [`serve`].

mod crash;
mod life;
mod page;

use std::cell::RefCell;

pub use ringway_keeper::page::{Blame, Left};
use ringway_keeper::page::{CONTROL, Cause, POLLER};

pub use crash::refused_calls;
pub use page::{Entry, Note};

/// Notes in this page from now on, and before the process ends by a signal of its own doing, which thread it was. To be called by the control
/// thread, once, before any other thread notes something and before clients' memory is mapped. `None`: nobody will read the notes.
///
/// # Errors
/// The page cannot be had: nobody will read the notes.
pub fn begin(page: Option<std::os::fd::OwnedFd>) -> std::io::Result<()> {
    // Before memory is mapped: the handler of clients' lost memory gives all other faults to this one.
    crash::install();
    let begun = page::begin(page);
    let control = Note::new();
    control.enter_thread(CONTROL);
    MINE.set(Some(control));
    page::life().into_iter().for_each(life::end_with_this_thread);
    begun
}

/// Notes that the process ends with this status, as the calling thread cannot go on.
pub(crate) fn note_exit(status: i32) {
    page::note_death(Cause::Status(u8::try_from(status).unwrap_or(u8::MAX)), true);
}

thread_local! {
    /// The note of a thread that is no poller's.
    static MINE: RefCell<Option<Note>> = const { RefCell::new(None) };
}

/// Notes a round of the control thread's loop.
pub fn note_round() {
    MINE.with_borrow(|mine| mine.iter().for_each(Note::turn));
}

/// The calling thread serves one port until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Serving {
    entry: Option<Entry>,
    /// What it served before.
    before: u64,
    /// Of the thread itself: Serving is not for another one.
    _here: std::marker::PhantomData<*const ()>,
}

/// From now on the calling thread serves the port with this label (`SWITCH:PORT`).
pub fn serve(label: &str) -> Serving {
    let entry = Entry::of_thread(label);
    let before = MINE.with_borrow_mut(|mine| {
        let note = mine.get_or_insert_with(|| {
            let note = Note::new();
            note.enter_thread(0);
            note
        });
        let before = note.using();
        note.serve(entry.as_ref().map_or(0, Entry::id));
        before
    });
    Serving { entry, before, _here: std::marker::PhantomData }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The thread may be ending.
        let _ = MINE.try_with(|mine| mine.borrow().iter().for_each(|note| note.serve(self.before)));
        self.entry = None;
    }
}

impl Note {
    /// The calling thread is a poller's from now on.
    pub fn enter_poller(&self) {
        self.enter_thread(POLLER);
    }

    /// The calling thread is a poller's, but may stand for as long as a client likes.
    pub fn enter_quarantine(&self) {
        self.enter_thread(0);
    }
}
