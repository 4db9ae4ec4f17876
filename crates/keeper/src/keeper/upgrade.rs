//! An upgrade: another executable becomes the switch.
//!
//! A process of the new version says first whether it understands what the keeper holds. Then the new switch is started, with its opener, and does
//! what it can before it is the switch. The old one ends at the boundary of a batch, and the new one goes on as a successor. If it does not serve, the old
//! executable is started again.

use std::collections::VecDeque;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::RecvFlags;

use super::next::Next;
use super::replacing::Carrier;
use super::requests::Request;
use super::switch::{Switch, how};

use crate::message::{BYTES_MOST, Message, Received, State, receive};
use crate::request::Answer;

/// Longest time for a new version to say whether it understands what is kept and to prepare itself, for the old one to end, and for the new one to
/// serve.
const CHECKED_WITHIN: Duration = Duration::from_secs(20);
const PREPARED_WITHIN: Duration = Duration::from_secs(20);
/// Longest time for the keeper to be replaced.
const CARRIED_WITHIN: Duration = Duration::from_secs(10);
const ENDED_WITHIN: Duration = Duration::from_secs(2);
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Most bytes that are read of what a new version says.
const SAID_MOST: usize = 16 << 10;

/// A running upgrade.
#[derive(Debug)]
pub(super) struct Upgrade {
    pub(super) request: Request,
    pub(super) phase: Phase,
    /// The end of the phase.
    pub(super) until: Instant,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Phase {
    /// The new version looks at what is kept.
    Checking(Check),
    /// The keeper is about to be replaced.
    Replacing(Carrier),
    /// The new switch prepares itself.
    Preparing(Next),
    /// The old switch was told to hand over, to this one.
    HandingOver(Option<Next>),
    /// The new one is the switch, since the end of the old one. `next`: until it is served.
    Starting { ended: Instant, next: Option<Next> },
}

impl Phase {
    /// The new switch while it prepares itself.
    pub(super) fn preparing(&self) -> Option<&Next> {
        if let Self::Preparing(next) = self { Some(next) } else { None }
    }

    /// Who gets all that the keeper has.
    pub(super) fn carrier(&self) -> Option<&Carrier> {
        if let Self::Replacing(carrier) = self { Some(carrier) } else { None }
    }
}

/// A process of the new version that looks at what is kept.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) process: Switch,
    /// What it is still to be told.
    pub(super) unsent: VecDeque<Message>,
    said: Option<std::process::ChildStderr>,
}

impl Check {
    pub(super) fn start(mut command: Command, unsent: VecDeque<Message>) -> std::io::Result<Self> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Switch::start(command)?;
        let said = process.take_stderr();
        Ok(Self { process, unsent, said })
    }

    /// Returns why the new version refuses, once it has ended.
    pub(super) fn refusal(&mut self) -> Option<String> {
        let status = self.process.status();
        let mut heard = vec![0; BYTES_MOST + 1];
        let mut fits = false;
        while let Ok(Received::Message { message, .. }) =
            receive(&*self.process.socket, &mut heard, RecvFlags::DONTWAIT)
        {
            fits |= message == Message::Is(State::Fits);
        }
        match (status.success(), fits) {
            (true, true) => return None,
            (true, false) => return Some("it is no ringway that can go on with what is kept".to_owned()),
            (false, _) => {}
        }
        let mut bytes = vec![0; SAID_MOST];
        // Its children may have the other end.
        let read = self.said.as_mut().and_then(|said| {
            rustix::io::ioctl_fionbio(&*said, true).ok()?;
            said.read(&mut bytes).ok()
        });
        let said = String::from_utf8_lossy(&bytes[..read.unwrap_or(0)]).into_owned();
        let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
        Some(line.unwrap_or_else(|| how(status)))
    }
}

impl Upgrade {
    pub(super) fn begin(request: Request, check: Check) -> Self {
        Self { request, phase: Phase::Checking(check), until: Instant::now() + CHECKED_WITHIN }
    }

    pub(super) fn replace(request: Request, carrier: Carrier) -> Self {
        Self { request, phase: Phase::Replacing(carrier), until: Instant::now() + CARRIED_WITHIN }
    }

    pub(super) fn prepare(self, next: Next) -> Self {
        Self { phase: Phase::Preparing(next), until: Instant::now() + PREPARED_WITHIN, ..self }
    }

    /// The new switch is prepared.
    pub(super) fn hand_over(self) -> Self {
        let Self { request, phase, .. } = self;
        let next = if let Phase::Preparing(next) = phase { Some(next) } else { None };
        Self { request, phase: Phase::HandingOver(next), until: Instant::now() + ENDED_WITHIN }
    }

    /// The new switch, once the old one has ended.
    pub(super) fn take_prepared(&mut self) -> Option<Next> {
        if let Phase::Starting { next, .. } = &mut self.phase { next.take() } else { None }
    }

    pub(super) fn start(self, ended: Instant) -> Self {
        let Self { request, phase, .. } = self;
        let next = if let Phase::HandingOver(next) = phase { next } else { None };
        Self { request, phase: Phase::Starting { ended, next }, until: Instant::now() + READY_WITHIN }
    }

    pub(super) fn refuse(&self, why: &str) {
        self.request.answer(&Answer::refused(why));
    }
}

/// The path by which an executable is started.
pub(super) fn program(executable: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", executable.as_raw_fd()))
}
