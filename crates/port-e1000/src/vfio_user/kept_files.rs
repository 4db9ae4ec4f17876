//! The files of a connection that a successor of this process needs, with the keeper: memory of the guest and eventfds.
//!
//! A file is kept before a record names it, and released after a record no longer does.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use ringway_port::front_end::{ClientFd, Kept, Left, Process};

/// Most files of a connection with the keeper: the keeper has few descriptors for each port. QEMU gives less than half as many.
const MOST_FILES: usize = 64;
/// The number of a file that is not kept because there are too many: the connection does not outlive this process while it has the file.
const TOO_MANY: u64 = u64::MAX;

/// Files in the keeper, each with a number.
#[derive(Default)]
pub struct KeptFiles<'k> {
    kept: Option<&'k Kept>,
    /// The number that was given last.
    last: u64,
    held: usize,
    released: Vec<u64>,
}

impl<'k> KeptFiles<'k> {
    /// The files of a connection; `None`: it does not outlive this process.
    pub fn new(kept: Option<&'k Kept>) -> KeptFiles<'k> {
        KeptFiles { kept, last: 0, held: 0, released: Vec::new() }
    }

    /// A predecessor has given numbers up to this one. The keeper holds so many files.
    pub fn go_on_after(&mut self, last: u64, held: usize) {
        (self.last, self.held) = (last, held);
    }

    /// Returns the number that was given last.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Has the keeper hold a file. Returns its number; 0: there is no keeper.
    ///
    /// # Errors
    /// The keeper cannot hold it.
    pub fn keep(&mut self, file: BorrowedFd<'_>) -> io::Result<u64> {
        let Some(kept) = self.kept else { return Ok(0) };
        if self.held >= MOST_FILES {
            return Ok(TOO_MANY);
        }
        (self.last, self.held) = (self.last.wrapping_add(1), self.held.saturating_add(1));
        kept.keep(&name(self.last), &[], &[file])?;
        Ok(self.last)
    }

    /// Has the keeper close files, after the next record.
    pub fn release(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.released.extend(numbers.into_iter().filter(|number| !matches!(*number, 0 | TOO_MANY)));
    }

    /// A record was written.
    pub fn settle(&mut self) {
        self.held = self.held.saturating_sub(self.released.len());
        for number in self.released.drain(..) {
            self.kept.iter().for_each(|kept| kept.release(&name(number)));
        }
    }
}

/// Takes a file that a predecessor left. `None`: it did not leave it, or the closer cannot have it.
pub fn take_left(left: &mut Left, number: u64, owner: Process) -> Option<ClientFd> {
    let file: OwnedFd = left.remove(&name(number))?.files.pop()?;
    let file = ClientFd::from(file);
    file.hold_left(owner, false).ok()?;
    Some(file)
}

fn name(number: u64) -> String {
    format!("file/{number}")
}
