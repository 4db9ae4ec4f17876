//! A switch that the keeper serves, and how it ended.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::death::Death;
use super::hang::Looks;
use super::hurry::Hurry;
use super::next::Next;
use super::opening::Opening;
use super::switch::{Switch, how};
use crate::message::Message;
use crate::page::Cause;

/// Longest time for a successor to serve. Programs are waited for so long, and devices.
pub(super) const SERVES_WITHIN: Duration = Duration::from_secs(120);

/// The switch, as it is served.
pub(super) struct Serving {
    pub(super) switch: Switch,
    pub(super) opening: Opening,
    /// What it is still to be told of what was left.
    pub(super) unsent: VecDeque<Message>,
    /// How many there were before it.
    pub(super) starts: u32,
    /// When that is tried again.
    pub(super) send_at: Option<Instant>,
    /// The end of the one before.
    pub(super) died: Option<Instant>,
    /// When it was started, has served, and said last that all is well.
    pub(super) begun: Instant,
    pub(super) ready: Option<Instant>,
    pub(super) alive: Option<Instant>,
    /// What was seen of it since it said that, and when the next look is.
    pub(super) looks: Looks,
    pub(super) look_at: Option<Instant>,
    /// The slot of a thread that hung: it was killed for that.
    pub(super) hung: Option<usize>,
    /// Tells its death early.
    pub(super) death: Option<Death>,
    /// It has the processors before others.
    pub(super) hurry: Option<Hurry>,
}

/// How a switch ended.
pub(super) struct End {
    pub(super) status: ExitStatus,
    /// How long it has served.
    pub(super) served: Option<Duration>,
    /// It was killed as it hung.
    pub(super) hung: bool,
}

impl End {
    /// For users, and for the successor.
    pub(super) fn text(&self) -> String {
        if self.hung { Cause::Hang.to_string() } else { how(self.status) }
    }

    /// Returns true if what it did ended it.
    pub(super) fn is_its_own(&self) -> bool {
        self.hung || is_its_own(&self.status)
    }
}

impl Serving {
    /// A switch that was just started.
    pub(super) fn new(Next { switch, opening }: Next, unsent: VecDeque<Message>) -> Self {
        Self {
            switch,
            opening,
            unsent,
            starts: 0,
            send_at: None,
            died: None,
            begun: Instant::now(),
            ready: None,
            alive: None,
            looks: Looks::default(),
            look_at: None,
            hung: None,
            death: None,
            hurry: None,
        }
    }

    /// When the switch is killed, if it does not do what it should.
    /// `told`: when one that was told to end is. `was_ready`: another one has served before.
    pub(super) fn kill_at(&self, told: Option<Instant>, was_ready: bool) -> Option<Instant> {
        // The service manager, or the user, judges how long the first one may take.
        let late = (was_ready && self.ready.is_none()).then(|| self.begun + SERVES_WITHIN);
        told.into_iter().chain(late).min()
    }
}

/// Returns true if a process ended by what it did itself.
fn is_its_own(status: &ExitStatus) -> bool {
    let own = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::ABORT, Signal::FPE, Signal::TRAP, Signal::SYS];
    status.signal().is_none_or(|signal| own.iter().any(|own| own.as_raw() == signal))
}

/// Returns true if a process was killed.
pub(super) fn is_by_kill(status: &ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}
