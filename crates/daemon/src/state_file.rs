//! The file that keeps what commands changed: read at the start, replaced as a whole after each change.
//!
//! Who can write the file decides what the switch opens, with the switch's privileges. So the file counts only if it belongs to the
//! switch's user or to root and nobody else can write to it. A file that cannot be used is renamed, and the switch starts without it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringway_api::paths::STATE_FILE;
use ringway_api::patience;
use ringway_config::changes::{Changes, text};
use ringway_keeper::opener::{Ask, Said, of_process};
use rustix::fs::{FlockOperation, MemfdFlags, OFlags, flock};
use rustix::io::Errno;

/// The end of the name of the file with grants.
const GRANTED: &str = ".granted";

/// Most names in a message of what is lost.
const NAMED_MOST: usize = 16;

/// Most files that could not be used and are left beside the state file.
const REFUSED_MOST: usize = 9;

/// Longest wait for the opener to open the file. Without it, what commands changed is lost.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// Longest wait for the opener. A disk that does not answer costs what is written only.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// The state file of a daemon.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// A file of the runtime directory that is read where `path` does not exist yet.
    older: Option<PathBuf>,
    /// The configuration file that the changes are of, for users.
    of: String,
}

/// What the state file had.
#[derive(Debug, Default)]
pub struct KeptState {
    /// What commands changed.
    pub changes: Changes,
    /// The changes are in another file, and have yet to be written to this one.
    pub is_elsewhere: bool,
    /// Why the file could not be used, and what is lost, for users.
    pub lost: Option<String>,
}

impl StateFile {
    /// Locks the file against another daemon with the same one, by the opener if there is one. Returns what holds the lock, if the file needs one: the runtime
    /// directory has a lock of its own.
    ///
    /// # Errors
    /// Another daemon has it: the message for users.
    pub fn lock(&self) -> Result<Option<File>, String> {
        if self.older.is_none() {
            return Ok(None);
        }
        match of_process().ask_done(&Ask::LockState, &[], patience(READ_WITHIN)) {
            None => self.lock_here(),
            Some(Ok(files)) => Ok(files.into_iter().next().map(File::from)),
            Some(Err(why)) if why.kind() == io::ErrorKind::AddrInUse => Err(why.to_string()),
            // Of a successor: to end would not mend that.
            Some(Err(why)) => {
                tracing::warn!("another daemon may use the state file {}, too: {why}", self.path.display());
                Ok(None)
            }
        }
    }

    /// The same without an opener.
    ///
    /// # Errors
    /// As above.
    pub fn lock_here(&self) -> Result<Option<File>, String> {
        if self.older.is_none() {
            return Ok(None);
        }
        let lock = with_suffix(&self.path, ".lock");
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits().cast_signed());
        // A folder that does not exist yet has no state, and no other daemon writes there either.
        let Ok(lock) = options.open(lock) else { return Ok(None) };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(format!(
                "another ringway daemon uses the state file {}: give each its own with [state] file",
                self.path.display()
            ));
        }
        Ok(Some(lock))
    }

    /// The file at `configured`, or that of the runtime directory if `configured` is empty. `config`: the configuration file, if there is one.
    pub fn locate(configured: &Path, runtime_dir: &Path, config: Option<&Path>) -> Self {
        let own = runtime_dir.join(STATE_FILE);
        let of = config.map_or_else(
            || "no configuration file".to_owned(),
            |file| format!("{:?}", file.canonicalize().unwrap_or_else(|_| file.to_owned())),
        );
        // By whatever path: the same file is not another one.
        let configured = with_real_folder(configured);
        if configured.as_os_str().is_empty() || configured == own {
            return Self { path: own, older: None, of };
        }
        Self { path: configured, older: Some(own), of }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file. A file that cannot be used gets another name.
    pub fn read(&self) -> KeptState {
        let (path, contents) = match (self.contents_of(&self.path), &self.older) {
            (Ok(None), Some(older)) => (older, self.contents_of(older)),
            (contents, _) => (&self.path, contents),
        };
        let bytes = match contents {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return KeptState::default(),
            Err(why) => return self.refused(path, &why, &[]),
        };
        let read = String::from_utf8(bytes).map_err(|error| (text::StateError::Altered, error.into_bytes()));
        let read = read.and_then(|text| text::read(&text).map_err(|why| (why, text.into_bytes())));
        match read {
            // A configuration that names its state file has no other one's.
            Ok((_, of)) if of != self.of && (self.older.is_none() || *path != self.path) => {
                self.refused(path, &format!("it is of {of}, and not of {}", self.of), b"")
            }
            Ok((changes, _)) => KeptState { changes, is_elsewhere: *path != self.path, lost: None },
            Err((why, bytes)) => self.refused(path, &why.to_string(), &bytes),
        }
    }

    /// Replaces the file by one with these changes, so that a reader finds the old contents or the new. No changes: removes it.
    ///
    /// # Errors
    /// The old contents remain: the message for users.
    pub fn write(&self, changes: &Changes) -> Result<(), String> {
        let contents = (!changes.is_empty()).then(|| text::write(changes, &self.of));
        if contents.as_ref().is_some_and(|contents| contents.len() > text::STATE_MAX) {
            return Err(format!("what commands changed is larger than {} MiB", text::STATE_MAX >> 20));
        }
        let opener = of_process();
        let done = match contents.as_deref().map(in_memory).transpose() {
            Ok(file) => {
                let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
                match opener.ask_done(&Ask::State, &files, WRITTEN_WITHIN) {
                    None => self.put(contents.as_deref()),
                    Some(done) => done.map(drop),
                }
            }
            Err(why) => Err(why),
        };
        done.map_err(|why| format!("cannot write {}: {why}", self.path.display()))
    }

    /// The bytes of this file or the older one, by the opener if there is one.
    fn contents_of(&self, path: &Path) -> Result<Option<Vec<u8>>, String> {
        match of_process().ask_done(&Ask::ReadState { older: *path != self.path }, &[], patience(READ_WITHIN)) {
            None => contents(path),
            Some(Err(why)) if why.kind() == ErrorKind::NotFound => Ok(None),
            Some(Err(why)) => Err(why.to_string()),
            Some(Ok(files)) => files.into_iter().next().map(|file| counted(File::from(file))).transpose(),
        }
    }

    /// Does what the switch asks the opener: opens the file, or the older one, for reading.
    ///
    /// # Errors
    /// There is none.
    pub fn open_to_read(&self, older: bool) -> io::Result<File> {
        let path = if older { self.older.as_deref() } else { Some(&*self.path) };
        open(path.ok_or(ErrorKind::NotFound)?)
    }

    /// Keeps a file that cannot be used under another name. Returns what is lost.
    fn refused(&self, path: &Path, why: &str, bytes: &[u8]) -> KeptState {
        let older = *path != self.path;
        let aside = match of_process().ask(&Ask::RefuseState { older }, &[], patience(READ_WITHIN)) {
            None => self.put_aside(older),
            Some(reply) => reply.and_then(|reply| match reply.said {
                Said::Aside(path) => Ok(path),
                other => Err(io::Error::other(format!("the opener says {other:?}"))),
            }),
        };
        let kept = match aside {
            Ok(path) => format!("it is {} now", path.display()),
            Err(why) => format!("it cannot be renamed ({why}), and the next change replaces it"),
        };
        let named = text::sections_named(&String::from_utf8_lossy(bytes));
        let lost = match named.as_slice() {
            [] => "what commands changed before is lost".to_owned(),
            all if all.len() > NAMED_MOST => {
                let first = all[..NAMED_MOST].join(", ");
                format!("lost is what commands changed before, of {first} and {} more", all.len() - NAMED_MOST)
            }
            all => format!("lost is what commands changed before, of {}", all.join(", ")),
        };
        let lost = format!("state file {} cannot be used: {why}; {lost}; {kept}", path.display());
        KeptState { lost: Some(lost), ..KeptState::default() }
    }

    /// Renames the file, or the older one. Returns its new path.
    ///
    /// # Errors
    /// It keeps its name.
    pub fn put_aside(&self, older: bool) -> io::Result<PathBuf> {
        let path = if older { self.older.as_deref() } else { Some(&*self.path) }.ok_or(ErrorKind::NotFound)?;
        let names = (1..=REFUSED_MOST).map(|number| match number {
            1 => with_suffix(path, ".refused"),
            _ => with_suffix(path, &format!(".refused.{number}")),
        });
        let names: Vec<PathBuf> = names.collect();
        let free = names.iter().find(|name| name.symlink_metadata().is_err()).unwrap_or(&names[0]);
        fs::rename(path, free).map(|()| free.clone())
    }

    /// Does what the switch asks the opener about the file: replaces it by the contents of this memory file, or removes it.
    ///
    /// # Errors
    /// The old contents remain.
    pub fn answer(&self, contents: Option<OwnedFd>) -> io::Result<()> {
        let contents = contents.map(text_of).transpose()?;
        self.put(contents.as_deref())
    }

    /// What administrators have granted, beside the state: see `opener`. Who could write the file could grant: it counts as the state file does.
    pub fn grants(&self) -> String {
        let of = |path: &Path| contents(&with_suffix(path, GRANTED)).ok().flatten();
        let bytes = of(&self.path).or_else(|| self.older.as_deref().and_then(of));
        bytes.map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Replaces them; none: removes the file.
    ///
    /// # Errors
    /// The old contents remain.
    pub fn put_grants(&self, grants: Option<&str>) -> io::Result<()> {
        let path = with_suffix(&self.path, GRANTED);
        // One of before the file was named counts where this one is missing.
        let remove_older = || self.older.as_deref().map_or(Ok(()), |older| removed(&with_suffix(older, GRANTED)));
        match grants {
            None => remove_older().and_then(|()| removed(&path)),
            Some(grants) => replace(&path, grants).and_then(|()| remove_older()),
        }
    }

    fn put(&self, contents: Option<&str>) -> io::Result<()> {
        let remove_older = || self.older.as_deref().map_or(Ok(()), removed);
        match contents {
            // The older one first: it is read where the other is missing.
            None => remove_older().and_then(|()| removed(&self.path)),
            Some(contents) => replace(&self.path, contents).and_then(|()| remove_older()),
        }
    }
}

/// The text of a memory file.
fn text_of(file: OwnedFd) -> io::Result<String> {
    // Nothing else: a read of other files can have an effect, or last.
    rustix::fs::fcntl_get_seals(&file)?;
    let mut file = File::from(file);
    file.seek(SeekFrom::Start(0))?;
    let mut text = String::new();
    file.take(text::STATE_MAX as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// A memory file with this text.
fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("ringway-state", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    Ok(file.into())
}

/// Returns the bytes of a file that counts. `None`: there is none.
///
/// # Errors
/// It cannot be read, or does not count: the reason.
fn contents(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match open(path) {
        Ok(file) => counted(file).map(Some),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why.to_string()),
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Returns the bytes of a file that counts.
///
/// # Errors
/// It cannot be read, or does not count: the reason.
fn counted(file: File) -> Result<Vec<u8>, String> {
    let meta = file.metadata().map_err(|why| why.to_string())?;
    let me = rustix::process::geteuid().as_raw();
    if !meta.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if meta.uid() != me && meta.uid() != 0 {
        return Err(format!("it belongs to user {}, and this is user {me}", meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("others can write to it (mode {:04o})", meta.mode() & 0o7777));
    }
    let mut bytes = Vec::new();
    file.take(text::STATE_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    Ok(bytes)
}

fn replace(path: &Path, contents: &str) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    // Of a daemon that was killed while it wrote, or of somebody else: never written through.
    removed(&new)?;
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    if let Err(why) = write() {
        // What was written of it takes room that others need.
        let _ = removed(&new);
        return Err(why);
    }
    // So that the new name outlasts a power failure. A file system without it has its own ways.
    let _ = path.parent().map(|folder| File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

fn removed(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Returns the path of a file in the real path of its folder, where that exists.
fn with_real_folder(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_granted_before_the_file_was_named_does_not_come_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let [run, named] = ["run", "named"].map(|name| dir.path().join(name));
        for folder in [&run, &named] {
            fs::create_dir(folder).expect("a folder");
        }
        let at = |configured: &Path| StateFile::locate(configured, &run, None);
        at(Path::new("")).put_grants(Some("old")).expect("it is written");
        let file = at(&named.join("state.toml"));
        assert_eq!(file.grants(), "old");
        file.put_grants(Some("new")).expect("it is written");
        assert_eq!(file.grants(), "new");
        file.put_grants(None).expect("it is removed");
        assert_eq!(file.grants(), "");
        at(Path::new("")).put_grants(Some("old")).expect("it is written");
        file.put_grants(None).expect("both are removed");
        assert_eq!(file.grants(), "");
    }

    #[test]
    fn the_contents_come_in_a_memory_file_only() {
        let text = text_of(in_memory("text").expect("memory")).expect("its text");
        assert_eq!(text, "text");
        let (reads, _writes) = rustix::pipe::pipe().expect("a pipe");
        for other in [File::open("/proc/self/stat").expect("a file").into(), reads] {
            assert!(text_of(other).is_err());
        }
    }
}
