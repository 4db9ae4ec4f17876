//! Starts a closer: a process, or a thread of the switch.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ringway_runtime::fatal;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{PidfdFlags, getpid, getppid, pidfd_open};

use super::message::{Message, send};
use super::process::serve;

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Starts a process that calls [`run`](super::run), with the socket at the other end of the returned one as its standard input.
///
/// # Errors
/// The kernel has no descriptors or processes left, or the program cannot be executed.
pub(super) fn start_process(mut command: Command) -> io::Result<(Arc<OwnedFd>, Child)> {
    let (near, far) = pair()?;
    let switch = pidfd_open(getpid(), PidfdFlags::empty())?;
    // The keeper, if there is one. Another parent is of no interest.
    let parent = getppid().and_then(|parent| pidfd_open(parent, PidfdFlags::empty()).ok());
    let processes: Vec<_> = std::iter::once(&switch).chain(&parent).map(AsFd::as_fd).collect();
    // Before it is started: a failure leaves no process behind.
    send(&near, Message::Switch, &processes, SendFlags::DONTWAIT)?;
    command.stdin(Stdio::from(far)).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
    let child = command.spawn()?;
    Ok((Arc::new(near), child))
}

/// Has a thread of this process do what the closer does.
pub(super) fn start_thread() -> Arc<OwnedFd> {
    let start = || {
        let (near, far) = pair()?;
        let far = Arc::new(far);
        std::thread::Builder::new().name("closer-inside".into()).spawn(move || serve(&far))?;
        Ok::<_, io::Error>(near)
    };
    match start() {
        Ok(near) => Arc::new(near),
        Err(error) => fatal(&format!("cannot start a thread that closes what clients have sent: {error}")),
    }
}
