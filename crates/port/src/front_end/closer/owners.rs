//! Whose closes the files of a port's connections count among.

use super::keeper::count_unclosed;
use crate::front_end::closing::Process;

/// Most earlier connections of a port with closes that wait for their peers, and most with descriptors that are not closed.
const MOST_LATE: usize = 16;
const MOST_UNCLOSED: usize = 256;

/// The owners of a port's connections with descriptors that are not closed, and of the last connection.
#[derive(Default)]
pub struct Owners(Vec<Process>);

impl Owners {
    /// Checks that the port may accept another connection, by the closes of the earlier ones.
    ///
    /// # Errors
    /// Too many have not ended. The text is for users.
    pub fn check(&mut self) -> Result<(), String> {
        let mut late = 0;
        self.0.retain(|owner| {
            let (late_closes, left) = count_unclosed(*owner);
            late += usize::from(late_closes > 0);
            left > 0
        });
        if late < MOST_LATE && self.0.len() < MOST_UNCLOSED {
            return Ok(());
        }
        Err(format!(
            "no connection is accepted: {} earlier ones keep their descriptors from being closed. A close waits for a watcher (epoll), \
             a peer (SO_LINGER) or a file system",
            self.0.len()
        ))
    }

    /// Notes the owner of the next connection.
    pub fn note(&mut self, owner: Process) {
        self.0.push(owner);
    }
}
