//! The switch: a child of the keeper.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};

/// Pause after the kernel refused to pass descriptors, because too many are on their way.
pub(super) const SEND_AGAIN: Duration = Duration::from_millis(5);

/// A running switch. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Switch {
    number: Pid,
    /// Nobody has waited for its end yet: no other process has its number.
    is_child: bool,
    stderr: Option<ChildStderr>,
    /// Readable when it has ended.
    pub(super) process: OwnedFd,
    /// The keeper's end.
    pub(super) socket: Arc<OwnedFd>,
    /// It handles signals. Before, each would end it.
    pub(super) hears: bool,
    /// It was killed: only its end is waited for.
    is_killed: Cell<bool>,
}

impl Switch {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut child = command.stdin(Stdio::from(far)).spawn()?;
        // The command has the other end, too.
        drop(command);
        let stderr = child.stderr.take();
        let number = Pid::from_child(&child);
        let mut switch = Self::of(number, near).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        switch.stderr = stderr;
        Ok(switch)
    }

    /// A child that was started before.
    pub(super) fn of(number: Pid, socket: OwnedFd) -> io::Result<Self> {
        let process = pidfd_open(number, PidfdFlags::empty())?;
        let (socket, is_killed) = (Arc::new(socket), Cell::new(false));
        Ok(Self { number, is_child: true, stderr: None, process, socket, hears: false, is_killed })
    }

    /// Sends a signal, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.process, signal);
        self.is_killed.set(self.is_killed.get() || signal == Signal::KILL);
    }

    /// Its process's number. It is that of no other process until it is waited for.
    pub(super) fn number(&self) -> u32 {
        self.number.as_raw_nonzero().get().unsigned_abs()
    }

    pub(super) fn process_number(&self) -> Pid {
        self.number
    }

    pub(super) fn is_killed(&self) -> bool {
        self.is_killed.get()
    }

    /// Ends a switch that breaks the rules.
    pub(super) fn end_for(&self, why: &str) {
        tracing::error!("the keeper ends the switch: {why}");
        self.signal(Signal::KILL);
    }

    /// What it writes to stderr, if that is a pipe.
    pub(super) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.stderr.take()
    }

    /// How it ended, and the keeper's end of its socket. It has.
    pub(super) fn end(mut self) -> (ExitStatus, Arc<OwnedFd>) {
        (self.status(), Arc::clone(&self.socket))
    }

    /// The same, of one whose threads have all ended, and which ended like this. What is left of it is unmapped and closed meanwhile.
    pub(super) fn leave(mut self, status: ExitStatus) -> (ExitStatus, Arc<OwnedFd>) {
        self.is_child = false;
        wait_elsewhere(self.number);
        (status, Arc::clone(&self.socket))
    }

    /// How it ended. It has.
    pub(super) fn status(&mut self) -> ExitStatus {
        let waited = std::mem::take(&mut self.is_child).then(|| waitpid(Some(self.number), WaitOptions::empty()));
        // Somebody else has waited for it. It does not count as an end that it wanted.
        let raw = waited.and_then(Result::ok).flatten().map_or_else(killed, |(_, status)| status.as_raw());
        ExitStatus::from_raw(raw)
    }
}

/// Returns true if the process has ended.
pub(super) fn has_ended(process: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// How a process ended, for users.
pub(super) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown end".to_owned(),
    }
}

/// The raw status of a process that was killed.
fn killed() -> i32 {
    Signal::KILL.as_raw()
}

impl Drop for Switch {
    fn drop(&mut self) {
        if self.is_child && !matches!(waitpid(Some(self.number), WaitOptions::NOHANG), Ok(Some(_))) {
            self.signal(Signal::KILL);
            wait_elsewhere(self.number);
        }
    }
}

/// Waits for the end of a child on a thread of its own: the kernel may keep it for long.
fn wait_elsewhere(number: Pid) {
    let wait = move || while matches!(waitpid(Some(number), WaitOptions::empty()), Err(Errno::INTR)) {};
    let _ = std::thread::Builder::new().name("wait".to_owned()).spawn(wait);
}
