//! The descriptors of a process that has those of clients.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A process with several threads waits whenever its table of descriptors becomes too small (`synchronize_rcu` in the kernel's `expand_files`: some 15 ms). A
/// table for so many takes 64 KiB.
const AT_ONCE: i32 = 8192;

/// Raises the limit of descriptors as far as this process may: the usual one of 1024 would end at 250 clients. Makes the table of descriptors as large as
/// hundreds of ports need: call it while this process has one thread.
///
/// # Errors
/// The kernel refuses to raise the limit.
pub fn prepare_descriptors() -> io::Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    let raised = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| i32::try_from(limit).ok());
    let number = limit.map_or(AT_ONCE, |limit| limit.min(AT_ONCE)) - 1;
    // Closed at once: the table stays as large.
    let _ = rustix::io::fcntl_dupfd_cloexec(io::stdin(), number);
    Ok(raised?)
}
