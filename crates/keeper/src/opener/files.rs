//! The opener of the whole process, for what is read where nobody knows of a switch: the configuration file, `/etc/passwd`, forwarding programs.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};

use super::ask::Ask;
use super::switch::Opener;

/// Longest wait for a file.
const OPENED_WITHIN: Duration = Duration::from_secs(5);

static OPENER: OnceLock<Opener> = OnceLock::new();

/// Uses this opener in the whole process from now on. Only the first call counts.
pub fn use_in_process(opener: Opener) {
    let _ = OPENER.set(opener);
}

/// The opener of this process. By default there is none.
pub fn of_process() -> Opener {
    OPENER.get().cloned().unwrap_or_default()
}

/// Opens a file for reading. A named pipe without a writer does not block.
///
/// # Errors
/// There is none, or this process may not read it.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    match of_process().ask_done(&Ask::Read { path: path.to_owned() }, &[], OPENED_WITHIN) {
        None => open_here(path),
        Some(files) => files?.into_iter().next().map(File::from).ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// The same without an opener.
///
/// # Errors
/// As above.
pub fn open_here(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(open(path, flags, Mode::empty())?.into())
}
