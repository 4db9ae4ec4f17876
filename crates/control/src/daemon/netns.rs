//! Work inside another network namespace.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps its names.
const NAMED: &str = "/run/netns";

/// Runs `work` inside the namespace, given by name or path, or here when none is. A thread of its own goes there, as the
/// namespace belongs to the thread and the way back could be barred.
pub fn inside<T: Send + 'static>(
    namespace: Option<&str>,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let Some(namespace) = namespace else { return work() };
    let path: PathBuf = Path::new(NAMED).join(namespace);
    let thread = std::thread::Builder::new().name("netns".to_owned()).spawn(move || {
        let file = File::open(&path).map_err(|e| format!("cannot open network namespace {}: {e}", path.display()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| format!("cannot enter network namespace {}: {e}", path.display()))?;
        work()
    });
    let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
    thread.join().unwrap_or_else(|_| Err("the thread in the network namespace panicked".to_owned()))
}
