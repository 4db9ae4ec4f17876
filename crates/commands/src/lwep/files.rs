//! Files that a server takes into one directory.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, open, openat, renameat_with, unlinkat};

/// Most bytes of a name.
const LONGEST_NAME: usize = 200;

/// A directory for files.
#[derive(Debug, Clone)]
pub struct Store {
    directory: Arc<OwnedFd>,
    overwrite: bool,
}

/// A file on its way. It gets its name when it is complete; without that it is removed.
#[derive(Debug)]
pub struct Incoming {
    store: Store,
    file: File,
    name: String,
    /// The name until then.
    part: String,
    left: u64,
}

/// Refuses a name that is more than a name in one directory, or that a terminal cannot show.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(format!("a file's name has 1 to {LONGEST_NAME} bytes"));
    }
    if name.starts_with('.') || name.contains('/') || name.chars().any(char::is_control) {
        return Err("a file's name does not begin with a dot and has no slash and no control characters".to_owned());
    }
    Ok(())
}

impl Store {
    /// Opens a directory. With `overwrite` a file replaces one of the same name.
    pub fn open(directory: &Path, overwrite: bool) -> Result<Self, String> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = open(directory, flags, Mode::empty());
        let directory = opened.map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Self { directory: Arc::new(directory), overwrite })
    }

    /// Begins a file of `size` bytes. `number` tells it from others that are on their way.
    pub fn begin(&self, name: &str, size: u64, number: u64) -> Result<Incoming, String> {
        check_name(name)?;
        let exists = rustix::fs::statat(self.directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if exists && !self.overwrite {
            return Err(Self::exists(name));
        }
        let part = format!(".{name}.{}-{number}.part", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(self.directory.as_fd(), &part, flags, Mode::from_raw_mode(0o666));
        let file = File::from(file.map_err(|error| format!("{name}: {error}"))?);
        Ok(Incoming { store: self.clone(), file, name: name.to_owned(), part, left: size })
    }

    fn exists(name: &str) -> String {
        format!("{name} exists there: \"lwep serve --overwrite\" replaces files")
    }
}

impl Incoming {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| format!("{}: more bytes than announced", self.name))?;
        self.file.write_all(bytes).map_err(|error| format!("{}: {error}", self.name))
    }

    /// Gives the complete file its name.
    pub fn finish(self) -> Result<(), String> {
        let name = &self.name;
        if self.left > 0 {
            return Err(format!("{name}: {} bytes are missing", self.left));
        }
        let flags = if self.store.overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let directory = self.store.directory.as_fd();
        renameat_with(directory, &self.part, directory, name, flags).map_err(|error| match error {
            rustix::io::Errno::EXIST => Store::exists(name),
            error => format!("{name}: {error}"),
        })
    }
}

#[cfg(test)]
impl Incoming {
    /// Writes to another file instead.
    pub fn into_file(mut self, file: File) -> Self {
        self.file = file;
        self
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Fails if the file has its name.
        let _ = unlinkat(self.store.directory.as_fd(), &self.part, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leaves_the_directory_is_refused() {
        for wrong in ["", ".", "..", "../a", "/a", "a/b", ".a", "a\n", "a\0", "\u{1b}[2J", &"a".repeat(201)] {
            assert!(check_name(wrong).is_err(), "{wrong:?}");
        }
        for right in ["a", "a..b", "größe 1.txt", &"a".repeat(200)] {
            assert_eq!(check_name(right), Ok(()));
        }
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all_and_replaces_another_only_if_that_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let files = || {
            let entries = std::fs::read_dir(directory.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let store = Store::open(directory.path(), false).unwrap();
        let mut first = store.begin("a", 3, 1).unwrap();
        let mut second = store.begin("a", 3, 2).unwrap();
        first.add(b"one").unwrap();
        assert!(first.add(b"!").unwrap_err().contains("more bytes"));
        second.add(b"tw").unwrap();
        assert!(second.finish().unwrap_err().contains("1 bytes are missing"));
        let mut second = store.begin("a", 3, 2).unwrap();
        second.add(b"two").unwrap();
        first.finish().unwrap();
        assert!(second.finish().unwrap_err().contains("exists"));
        assert!(store.begin("a", 3, 3).unwrap_err().contains("--overwrite"));
        assert_eq!(files(), ["a"]);
        let mut third = Store::open(directory.path(), true).unwrap().begin("a", 5, 4).unwrap();
        third.add(b"three").unwrap();
        third.finish().unwrap();
        assert_eq!(std::fs::read(directory.path().join("a")).unwrap(), b"three");
        assert_eq!(files(), ["a"]);
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_not_followed() {
        let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        std::os::unix::fs::symlink(outside.path(), directory.path().join("a")).unwrap();
        assert!(Store::open(directory.path(), false).unwrap().begin("a", 1, 1).is_err());
        let mut file = Store::open(directory.path(), true).unwrap().begin("a", 1, 1).unwrap();
        file.add(b"x").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(outside.path()).unwrap(), b"");
        assert_eq!(std::fs::read(directory.path().join("a")).unwrap(), b"x");
    }
}
