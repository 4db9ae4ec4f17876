//! Programs of peers, as the distribution installs them.

use std::path::PathBuf;

/// Path of a program; `None`: it is not installed.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    // Administration tools are often left out of an ordinary user's PATH.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
