//! How much the switch may have made in the runtime directory, which lies in memory.

use std::path::Path;

/// Most files there: a socket and a record for each of the most ports, with those that are kept aside, and as much again.
pub(super) const FILES_MOST: usize = 16 << 10;

/// The room that is left, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Files that can be made before they are counted again.
    left: usize,
}

impl Room {
    /// Takes the room for one file.
    ///
    /// # Errors
    /// There is none: the reason, for users.
    pub(super) fn take(&mut self, directory: &Path) -> Result<(), String> {
        if self.left == 0 {
            let there = std::fs::read_dir(directory).map(Iterator::count).unwrap_or(0);
            self.left = FILES_MOST.saturating_sub(there);
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| format!("{} has {FILES_MOST} files already: remove some", directory.display()))?;
        Ok(())
    }
}
