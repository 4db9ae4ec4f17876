//! Work inside another network namespace.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::contract::CannotOpen;

/// The directory of the names of `ip netns`.
const NAMED: &str = "/run/netns";

/// Runs `work` inside the namespace of this name or path, or in the present one if there is none. A thread of its own enters the
/// namespace: a namespace belongs to a thread, and returning to the old one can be forbidden.
pub fn inside<T: Send + 'static>(
    namespace: Option<&str>,
    work: impl FnOnce() -> Result<T, CannotOpen> + Send + 'static,
) -> Result<T, CannotOpen> {
    let Some(namespace) = namespace else { return work() };
    let path: PathBuf = Path::new(NAMED).join(namespace);
    let thread = std::thread::Builder::new().name("netns".to_owned()).spawn(move || {
        let cannot = |verb: &str, why: io::Error| CannotOpen {
            what: format!("cannot {verb} network namespace {}: {why}", path.display()),
            why,
        };
        // Opening a FIFO must not block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(|why| cannot("open", why.into()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|why| cannot("enter", why.into()))?;
        work()
    });
    let thread = thread.map_err(|why| CannotOpen { what: format!("cannot start a thread: {why}"), why })?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
