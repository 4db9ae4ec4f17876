//! The opener of the whole process, for what is read where nobody knows of a switch: the configuration file, `/etc/passwd`, forwarding programs.
//! And how the opener opens paths that others may be able to write to.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::ask::Ask;
use super::switch::Opener;

/// Longest wait for a file.
const OPENED_WITHIN: Duration = Duration::from_secs(5);
/// Most links that are followed, as the kernel does.
const LINKS_MOST: usize = 40;

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
    Ok(open(path, TO_READ, Mode::empty())?.into())
}

const TO_READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens the regular file at a path of the configuration for reading, in a folder that others may write to. Follows links of root and of this user only.
/// Nothing else is opened, as the open alone can have an effect on devices and pipes.
///
/// # Errors
/// There is no such file, or this process may not read it.
pub fn open_named(path: &Path) -> io::Result<File> {
    let mut path = real(path);
    for _ in 0..LINKS_MOST {
        let found = find_without_links(&path)?;
        let about = fstat(&found)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::RegularFile => return open_here(&place_of(&found)),
            FileType::Symlink if is_trusted(about.st_uid) => {
                let target = readlinkat(&found, "", Vec::new())?;
                path = real(&path.parent().unwrap_or(Path::new("/")).join(OsStr::from_bytes(target.as_bytes())));
            }
            FileType::Symlink => {
                let (here, owner) = (path.display(), about.st_uid);
                return Err(io::Error::other(format!(
                    "{here} is a link of user {owner}, who could have it lead anywhere: name the file itself, or make the link as root"
                )));
            }
            _ => return Err(io::Error::other("it is no regular file")),
        }
    }
    Err(Errno::LOOP.into())
}

/// Root may have no number in a namespace of users: the root folder is root's.
fn is_trusted(owner: u32) -> bool {
    [0, geteuid().as_raw()].contains(&owner) || Path::new("/").metadata().is_ok_and(|root| root.uid() == owner)
}

/// Finds what is at this path, without opening it: a link at its end is found itself. No link is followed, so that nobody can have the path lead elsewhere.
/// Before Linux 5.6, links to folders are followed.
///
/// # Errors
/// There is nothing, or a link is on the way.
pub fn find_without_links(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // The kernel is older, or a container refuses what is new.
        Err(Errno::NOSYS | Errno::PERM) => Ok(open(path, flags, Mode::empty())?),
        found => Ok(found?),
    }
}

/// Returns a path that leads to this file, wherever it is now.
pub fn place_of(file: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

/// Returns the path in the real path of its folder, so that the same file has one name.
pub fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(path.file_name()).map_or_else(|| path.clone(), |(folder, name)| folder.join(name))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, read_to_string, write};
    use std::io::Read;
    use std::os::unix::fs::{lchown, symlink};

    use ringway_testing::file::directory;

    use super::*;

    fn text_of(path: &Path) -> io::Result<String> {
        let mut text = String::new();
        open_named(path)?.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn links_of_root_and_of_this_user_are_followed_and_links_of_others_are_refused() {
        let dir = directory();
        let path = |name: &str| dir.path().join(name);
        create_dir(path("folder")).expect("a folder");
        write(path("folder/file"), "text").expect("a file");
        symlink("folder/file", path("link")).expect("a link");
        symlink("link", path("further")).expect("a link");
        symlink("folder", path("way")).expect("a link");
        for name in ["folder/file", "link", "further", "way/file"] {
            assert_eq!(text_of(&path(name)).ok().as_deref(), Some("text"), "{name}");
        }
        symlink("round", path("round")).expect("a link");
        assert_eq!(text_of(&path("round")).expect_err("no end").raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        if geteuid().is_root() {
            for name in ["link", "further"] {
                lchown(path("link"), Some(65534), None).expect("another owner");
                let why = text_of(&path(name)).expect_err("refused").to_string();
                assert!(why.contains("is a link of user 65534"), "{name}: {why}");
            }
        }
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_opened() {
        let dir = directory();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        assert_eq!(text_of(&path).expect_err("refused").to_string(), "it is no regular file");
        // Nobody reads the pipe: who writes learns that.
        let writer = open(&path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(writer.map(drop), Err(Errno::NXIO));
    }

    #[test]
    fn no_link_on_the_way_is_followed_and_one_at_the_end_is_found_itself() {
        let dir = directory();
        let folder = real(&dir.path().join("folder"));
        create_dir(&folder).expect("a folder");
        write(folder.join("file"), "text").expect("a file");
        symlink("folder", folder.with_file_name("way")).expect("a link");
        let found = find_without_links(&folder.join("file")).expect("it is there");
        assert_eq!(read_to_string(place_of(&found)).ok().as_deref(), Some("text"));
        let link = find_without_links(&folder.with_file_name("way")).expect("it is there");
        assert_eq!(FileType::from_raw_mode(fstat(&link).expect("its state").st_mode), FileType::Symlink);
        let on_the_way = find_without_links(&folder.with_file_name("way").join("file"));
        // Linux 5.6 and newer.
        let is_old = openat2(CWD, ".", OFlags::PATH, Mode::empty(), ResolveFlags::empty()).is_err();
        assert!(is_old || on_the_way.is_err_and(|why| why.raw_os_error() == Some(Errno::LOOP.raw_os_error())));
    }
}
