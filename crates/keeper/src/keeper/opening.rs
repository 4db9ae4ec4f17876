//! The opener of a switch: started beside it, and again when it ends.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, shutdown};
use rustix::process::Signal;

use super::grants::Grants;
use super::switch::{SEND_AGAIN, Switch, has_ended};
use crate::message::{Message, send};

/// Least time between two starts.
const START_EVERY: Duration = Duration::from_secs(1);

/// Longest wait for its end.
const ENDED_WITHIN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The opener of one switch. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Opening {
    /// What it executes: the same as the switch.
    program: PathBuf,
    process: Option<Switch>,
    /// The switch has to be told of it.
    untold: bool,
    /// Not before this, because the kernel refused to pass a descriptor.
    tell_at: Option<Instant>,
    start_at: Option<Instant>,
}

impl Opening {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, process: None, untold: false, tell_at: None, start_at: None }
    }

    /// An opener that another keeper has started. The switch knows of it.
    pub(super) fn of(program: PathBuf, process: Switch) -> Self {
        Self { process: Some(process), ..Self::new(program) }
    }

    /// The opener, if the switch knows of it.
    pub(super) fn known(&self) -> Option<&Switch> {
        self.process.as_ref().filter(|_| !self.untold)
    }

    /// What to wait for.
    pub(super) fn process(&self) -> Option<&OwnedFd> {
        self.process.as_ref().map(|process| &process.process)
    }

    /// Its process's number.
    pub(super) fn number(&self) -> Option<u32> {
        self.process.as_ref().map(Switch::number)
    }

    /// Whether the switch is to be told something.
    pub(super) fn sends(&self) -> bool {
        self.untold && self.tell_at.is_none()
    }

    /// When to look again, whatever happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.start_at.filter(|_| self.process.is_none()).into_iter().chain(self.tell_at).min()
    }

    /// Ends the opener after the switch, when it has done what that asked last, so that nothing is removed or made later.
    pub(super) fn end(self) {
        let Some(process) = &self.process else { return };
        let _ = shutdown(&*process.socket, Shutdown::Both);
        let _ = poll(&mut [PollFd::new(&process.process, PollFlags::IN)], Some(&ENDED_WITHIN));
    }

    pub(super) fn kill(&self) {
        self.process.iter().for_each(|process| process.signal(Signal::KILL));
    }

    /// Starts the opener if there is none, and tells the switch.
    pub(super) fn go_on(&mut self, switch: &Switch, grants: &Grants, command: impl FnOnce(&Path) -> Command) {
        if self.process().is_some_and(has_ended) {
            tracing::error!(
                "the process that opens devices and sockets for the switch has ended: another one is started"
            );
            self.process = None;
            self.untold = false;
        }
        let now = Instant::now();
        if self.process.is_none() && self.start_at.is_none_or(|at| at <= now) {
            self.start_at = Some(now + START_EVERY);
            let mut command = command(&self.program);
            // It logs to stderr only.
            let started = grants.file().and_then(|grants| {
                command.stdout(grants);
                Switch::start(command)
            });
            match started {
                Ok(process) => (self.process, self.untold) = (Some(process), true),
                Err(why) => tracing::error!("nothing can be opened for the switch: {why}"),
            }
        }
        self.tell_at = self.tell_at.filter(|at| *at > now);
        if let Some(process) = self.process.as_ref().filter(|_| self.untold && self.tell_at.is_none()) {
            let told = send(&*switch.socket, &Message::Opener, &[process.socket.as_fd()], SendFlags::DONTWAIT);
            let later = matches!(told, Err(Errno::TOOMANYREFS | Errno::NOMEM | Errno::NOBUFS));
            self.tell_at = later.then(|| now + SEND_AGAIN);
            // The switch has ended, if this fails otherwise.
            self.untold = later || told == Err(Errno::AGAIN);
        }
    }
}
