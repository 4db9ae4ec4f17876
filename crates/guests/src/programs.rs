//! Programs of the host.

use std::path::{Path, PathBuf};

use crate::Error;

/// Where a program is.
pub fn find(program: &str, package: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|dir| Path::new(&dir).join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::Missing { program: program.to_owned(), package: package.to_owned() })
}
