//! What a keeper is to do, and what it tells its caller.

use std::path::PathBuf;
use std::time::Duration;

use crate::message::State;

/// What to keep.
#[derive(Debug)]
pub struct Options<C> {
    /// Makes the command that executes this path in this role. Its standard input is the keeper's.
    pub command: C,
    /// Longest time from SIGTERM to the end of the switch, which is killed then.
    pub end_within: Duration,
    /// Where administrators ask for an upgrade, once the switch has served.
    pub socket: PathBuf,
    /// The keeper before this one executed it ([`Role::Keeper`]).
    pub resumes: bool,
    /// The names whose files a new version looks at before it is the switch.
    pub checked: &'static [&'static str],
}

/// What a process is started for. The switch and the check call [`Link::from_keeper`](crate::Link::from_keeper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To be the switch.
    Switch,
    /// To be the switch once the present one has ended. It calls [`Link::from_keeper_ahead`](crate::Link::from_keeper_ahead).
    Next,
    /// To open for the switch what it may not open: [`opener`](crate::opener). Its standard input is the switch's socket.
    Opener,
    /// The same for a switch that is started ahead.
    NextOpener,
    /// To say whether it could go on with what is kept: by its status, and by its last line on stderr.
    Check,
    /// To [`carry`](crate::carry) what a keeper has over to another one.
    Carrier,
    /// To be the keeper in place of this one: it executes this command, and has [`Options::resumes`] then.
    Keeper,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The switch says what it is about.
    Is(State),
    /// The switch has died, and another one is started after this pause.
    Died {
        /// How it ended: `signal 9`, `status 70`, `hang`.
        how: String,
        /// The pause.
        pause: Duration,
    },
    /// Another switch serves what the one before left, so long after that one's end.
    Again(Duration),
    /// Another executable is the switch now, so long after the end of the one before.
    Upgraded(Duration),
    /// It is not, for this reason.
    NotUpgraded(String),
    /// The keeper is about to execute another version of itself. Signals are held back from now on.
    Replacing,
    /// It is that version, and handles signals: they are let through.
    Replaced,
}

/// How the switch ended, when no other one was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The status to exit with.
    pub status: u8,
}
