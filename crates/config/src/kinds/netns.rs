//! Work inside another network namespace.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringway_keeper::opener::{Ask, Said, of_process};
use rustix::fs::{Mode, OFlags, fstat, stat};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::contract::{CannotOpen, Namespace, Process};

/// The directory of the names of `ip netns`.
const NAMED: &str = "/run/netns";

fn path(name: &str) -> PathBuf {
    Path::new(NAMED).join(name)
}

/// Longest wait for the opener, which looks into `/proc` only.
const LOOKED_WITHIN: Duration = Duration::from_millis(200);

/// Returns the namespace that has this name or path now, if there is one.
///
/// # Errors
/// Nobody knows.
pub fn now(name: &str) -> io::Result<Option<Namespace>> {
    let here = path(name);
    // Those of processes are for who may trace them.
    if in_process(&here).is_some()
        && let Some(reply) = of_process().ask(&Ask::Namespace { name: name.to_owned() }, &[], LOOKED_WITHIN)
    {
        let Said::Namespace(place) = reply?.said else { return Err(io::ErrorKind::InvalidData.into()) };
        return Ok(place.map(|place| Namespace::with_number(place.identity, None)));
    }
    match stat(here) {
        Ok(found) => Ok(Some(Namespace::new(&found, None))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        // The opener may look into folders that the switch may not.
        Err(why) => Err(why.into()),
    }
}

/// The same, without an opener.
pub fn here(name: &str) -> Option<Namespace> {
    stat(path(name)).ok().map(|found| Namespace::new(&found, None))
}

/// Runs `work` inside the namespace of this name or path, or in the present one if there is none. A thread of its own enters the
/// namespace: a namespace belongs to a thread, and returning to the old one can be forbidden. The namespace has to be `only`, if that is
/// something and
/// was that of a process. Returns the namespace, too.
pub fn inside<T: Send + 'static>(
    name: Option<&str>,
    only: Option<Namespace>,
    work: impl FnOnce() -> Result<T, CannotOpen> + Send + 'static,
) -> Result<(T, Option<Namespace>), CannotOpen> {
    let Some(name) = name else { return work().map(|done| (done, None)) };
    let path = path(name);
    let thread = std::thread::Builder::new().name("netns".to_owned()).spawn(move || {
        let (file, namespace) = open(&path, only.as_ref())?;
        check_other(&path, &namespace)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|why| cannot("enter", &path, why.into()))?;
        work().map(|done| (done, Some(namespace)))
    });
    let thread = thread.map_err(|why| CannotOpen { what: format!("cannot start a thread: {why}"), why })?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Refuses Ringway's own namespace: who can write to the path would have another device of that name opened, with Ringway's privileges.
fn check_other(path: &Path, found: &Namespace) -> Result<(), CannotOpen> {
    let own = stat("/proc/thread-self/ns/net").map(|own| Namespace::new(&own, None));
    if own.is_ok_and(|own| own.has_number_of(found)) {
        let why = io::Error::new(io::ErrorKind::InvalidInput, "it is Ringway's own: leave out netns");
        return Err(cannot("use", path, why));
    }
    Ok(())
}

fn cannot(verb: &str, path: &Path, why: io::Error) -> CannotOpen {
    CannotOpen { what: format!("cannot {verb} network namespace {}: {why}", path.display()), why }
}

/// Opens the namespace of this path. The path can name a process, whose number can be a stranger's later: it has to be that of `only` then,
/// if that was another process's with this number.
fn open(path: &Path, only: Option<&Namespace>) -> Result<(OwnedFd, Namespace), CannotOpen> {
    // Opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let failed = |why: Errno| cannot("open", path, why.into());
    let looked = |file: &OwnedFd| fstat(file).map_err(|why| cannot("look at", path, why.into()));
    let Some((number, file)) = in_process(path) else {
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let found = Namespace::new(&looked(&file)?, None);
        return Ok((file, found));
    };
    let Some((only, process)) =
        only.and_then(|only| Some((only, only.process.clone()?))).filter(|(_, p)| p.number == number)
    else {
        let status = rustix::fs::open(format!("/proc/{number}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let process = Process { number, file: Arc::new(status.map_err(failed)?) };
        let file = rustix::fs::open(&file, flags, Mode::empty()).map_err(failed)?;
        if !process.is_there() {
            return Err(failed(Errno::SRCH));
        }
        let found = Namespace::new(&looked(&file)?, Some(process));
        return Ok((file, found));
    };
    let refused = |why: &str| {
        let what = format!(
            "network namespace {} was {only} when the port was open: {why}; remove the port, and add it with the path of the new one",
            path.display()
        );
        CannotOpen { why: io::Error::new(io::ErrorKind::NotFound, what.clone()), what }
    };
    let file = rustix::fs::open(&file, flags, Mode::empty());
    // Afterwards: it was the process's.
    if !process.is_there() {
        return Err(refused("the process that had this number has ended"));
    }
    let file = file.map_err(|why| match why {
        Errno::NOENT | Errno::SRCH => refused("the process that had this number has ended"),
        why => failed(why),
    })?;
    let found = Namespace::new(&looked(&file)?, Some(process));
    if !found.has_number_of(only) {
        return Err(refused("the process is in another one now"));
    }
    Ok((file, found))
}

/// Returns the number of the process that a path names, also by a symbolic link, and the file, by a path without links before `/proc`.
fn in_process(path: &Path) -> Option<(u32, PathBuf)> {
    let mut path = path.to_owned();
    // As many links as the kernel follows.
    for _ in 0..=40 {
        if let Ok(within) = path.strip_prefix("/proc") {
            let mut parts = within.components();
            let number = parts.next()?.as_os_str().to_str()?.parse().ok()?;
            return Some((number, path));
        }
        let target = std::fs::read_link(&path).ok()?;
        path = path.parent()?.join(target);
    }
    None
}

/// The namespace of a process, in which the device of a port was that is closed.
#[derive(Debug)]
pub struct ProcessNamespace {
    /// The key `netns` of the port.
    pub path: String,
    /// What it was.
    pub namespace: Namespace,
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::fs::FileType;

    use super::*;

    fn sleeping() -> Child {
        Command::new("sleep").arg("infinity").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_with_the_number_of_an_ended_one_is_a_stranger_though_its_namespace_has_the_same_number_too() {
        let dir = tempfile::tempdir().unwrap();
        let (first, stranger) = (sleeping(), sleeping());
        let file = |process: &Child| PathBuf::from(format!("/proc/{}/ns/net", process.id()));
        let (_, mut was) = open(&file(&first), None).unwrap();
        assert!(open(&file(&first), Some(&was)).is_ok_and(|(_, now)| now.has_number_of(&was)));
        let about = fstat(&was.process().unwrap().file).unwrap();
        assert_eq!(FileType::from_raw_mode(about.st_mode), FileType::RegularFile, "who gets it comes nowhere by it");
        end(first);
        // As the kernel may number the other one.
        was.process.as_mut().unwrap().number = stranger.id();
        assert!(here(file(&stranger).to_str().unwrap()).is_some_and(|now| now.has_number_of(&was)));
        let link = dir.path().join("name");
        std::os::unix::fs::symlink(file(&stranger), &link).unwrap();
        for path in [file(&stranger), link.clone()] {
            let what = open(&path, Some(&was)).unwrap_err().what;
            assert!(what.contains("the process that had this number has ended"), "{what}");
        }
        // An administrator has let the name stand for another process.
        let other = sleeping();
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(file(&other), &link).unwrap();
        assert!(open(&link, Some(&was)).is_ok());
        [stranger, other].into_iter().for_each(end);
    }

    #[test]
    fn a_path_that_leads_to_ringways_own_namespace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(format!("/proc/{}/ns/net", std::process::id()), &link).unwrap();
        let entered = inside(link.to_str(), None, || Ok(()));
        assert!(entered.is_err_and(|why| why.what.ends_with("it is Ringway's own: leave out netns")));
    }

    #[test]
    fn names_of_files_are_told_from_those_of_processes() {
        let number = std::process::id();
        let of = |path: &str| in_process(Path::new(path)).map(|(number, file)| (number, file.display().to_string()));
        assert_eq!(of("/proc/7/task/8/ns/net"), Some((7, "/proc/7/task/8/ns/net".to_owned())));
        for path in ["/proc/self/ns/net", "/proc/x", "/run/netns/none", "relative", "/"] {
            assert_eq!(of(path), None, "{path}");
        }
        assert!(open(Path::new(&format!("/proc/{number}/ns/none")), None).is_err());
    }
}
