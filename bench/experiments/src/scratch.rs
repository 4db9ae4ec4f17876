//! A temporary folder for sockets and configuration, removed when it is dropped.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A private folder with a short name: socket paths may have 107 bytes.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Makes the folder. Its name contains `purpose` and the process id.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(purpose: &str) -> io::Result<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ringway-{purpose}-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot make {}: {error}", folder.display())))?;
        Ok(Scratch { folder })
    }

    /// Returns the path of `name` in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
