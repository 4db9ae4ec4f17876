//! The switch: a child of the keeper.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A running switch. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Switch {
    child: Child,
    /// Readable when it has ended.
    pub(super) process: OwnedFd,
    /// The keeper's end.
    pub(super) socket: Arc<OwnedFd>,
    /// It handles signals. Before, each would end it.
    pub(super) hears: bool,
}

impl Switch {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut child = command.stdin(Stdio::from(far)).spawn()?;
        // The command has the other end, too.
        drop(command);
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Self { child, process, socket: Arc::new(near), hears: false })
    }

    /// Sends a signal, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.process, signal);
    }

    /// Ends a switch that breaks the rules.
    pub(super) fn end_for(&self, why: &str) {
        tracing::error!("the keeper ends the switch: {why}");
        self.signal(Signal::KILL);
    }

    /// What it writes to stderr, if that is a pipe.
    pub(super) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// How it ended. It has.
    pub(super) fn status(&mut self) -> ExitStatus {
        // The process is a child, and nobody else waits for it.
        self.child.wait().unwrap_or_default()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
