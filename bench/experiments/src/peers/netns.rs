//! Network namespaces without a name: the kernel deletes one when its last descriptor is closed, however this process ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

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

/// Opens the calling thread's namespace.
///
/// # Errors
/// There is no procfs.
pub fn current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Returns a path to an open namespace for other programs. It is valid as long as `namespace` is open here.
#[must_use]
pub fn path(namespace: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd()).into()
}

/// Runs `work` inside `namespace`, on a new thread. Devices that `work` opens stay usable outside.
///
/// # Errors
/// This process is not root (CAP_SYS_ADMIN), or `work` fails.
pub fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let entered = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        work()
    };
    let done = thread::scope(|scope| scope.spawn(entered).join());
    done.map_err(|_| io::Error::other("setting up in the network namespace panicked"))?
}

/// Gives the calling thread a sysfs of its own, which shows the devices of its namespace.
///
/// # Errors
/// This process is not root (CAP_SYS_ADMIN).
pub fn own_sysfs() -> io::Result<()> {
    // SAFETY: no descriptor table is unshared, only this thread's mount namespace.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    run("mount", "--make-rprivate /")?;
    run("mount", "-t sysfs ringway-bench /sys")
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
