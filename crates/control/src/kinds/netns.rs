//! Work inside another network namespace.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, stat};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::contract::{CannotOpen, Namespace};

/// The directory of the names of `ip netns`.
const NAMED: &str = "/run/netns";

fn path(name: &str) -> PathBuf {
    Path::new(NAMED).join(name)
}

/// Returns the namespace that has this name or path now, if there is one.
pub fn now(name: &str) -> Option<Namespace> {
    stat(path(name)).ok().map(Namespace::from)
}

/// Returns true if the path names a process: its number can be a stranger's later.
pub fn is_of_process(name: &str) -> bool {
    name.starts_with("/proc/")
}

/// Runs `work` inside the namespace of this name or path, or in the present one if there is none. A thread of its own enters the
/// namespace: a namespace belongs to a thread, and returning to the old one can be forbidden. The namespace has to be `only`, if that is
/// something. Returns the namespace, too.
pub fn inside<T: Send + 'static>(
    name: Option<&str>,
    only: Option<Namespace>,
    work: impl FnOnce() -> Result<T, CannotOpen> + Send + 'static,
) -> Result<(T, Option<Namespace>), CannotOpen> {
    let Some(name) = name else { return work().map(|done| (done, None)) };
    let path = path(name);
    let thread = std::thread::Builder::new().name("netns".to_owned()).spawn(move || {
        let (file, namespace) = open(&path, only)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|why| cannot("enter", &path, why.into()))?;
        work().map(|done| (done, Some(namespace)))
    });
    let thread = thread.map_err(|why| CannotOpen { what: format!("cannot start a thread: {why}"), why })?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn cannot(verb: &str, path: &Path, why: io::Error) -> CannotOpen {
    CannotOpen { what: format!("cannot {verb} network namespace {}: {why}", path.display()), why }
}

fn open(path: &Path, only: Option<Namespace>) -> Result<(OwnedFd, Namespace), CannotOpen> {
    // Opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|why| cannot("open", path, why.into()))?;
    let found = fstat(&file).map(Namespace::from).map_err(|why| cannot("look at", path, why.into()))?;
    match only.filter(|only| *only != found) {
        None => Ok((file, found)),
        Some(only) => {
            let what = format!(
                "network namespace {} is {found} now, and the port's was {only}: the process that had this number has ended; remove the port, and add \
                 it with the path of the new one",
                path.display()
            );
            Err(CannotOpen { why: io::Error::new(io::ErrorKind::NotFound, what.clone()), what })
        }
    }
}

/// The namespace of a process, in which the device of a port was that is closed.
#[derive(Debug)]
pub struct ProcessNamespace {
    /// `/proc/PID/ns/net`.
    pub path: String,
    /// What it was.
    pub namespace: Namespace,
}
