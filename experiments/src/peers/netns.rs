//! Network namespaces without a name: the kernel deletes one when its last descriptor is closed, however this process ends.

use std::io;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Makes a namespace and runs `work` inside it, on a new thread. Devices that `work` opens stay usable outside.
///
/// # Errors
/// This process is not root (CAP_SYS_ADMIN), or `work` fails.
pub fn inside_new<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let thread = thread::spawn(move || {
        // SAFETY: no descriptor table is unshared, only this thread's network and mount namespaces.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot make a network namespace: {error} (needs root)"))
        })?;
        work()
    });
    thread.join().map_err(|_| io::Error::other("setting up the network namespace panicked"))?
}

/// Runs an administration command in the calling thread's namespace.
///
/// # Errors
/// The command is not installed, or fails. The message has what it wrote.
pub fn run(program: &str, arguments: &str) -> io::Result<()> {
    let describe = |what: String| io::Error::other(format!("{program} {arguments}: {what}"));
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| describe(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(describe(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
