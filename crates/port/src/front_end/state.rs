//! The state of a port whose peer comes and goes.

use std::time::{Duration, Instant};

/// State of a port's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No peer is connected.
    Waiting,
    /// A peer is connected, and frames cannot flow yet: the guest's driver has not started a queue, or there is no link.
    Connected,
    /// Frames flow.
    Up,
}

impl State {
    /// The state of a port with (`connected`) or without a peer, whose driver is ready for frames (`ready`) or not.
    pub fn new(connected: bool, ready: bool) -> State {
        match (connected, ready) {
            (false, _) => State::Waiting,
            (true, false) => State::Connected,
            (true, true) => State::Up,
        }
    }

    /// Returns the name in `status --json` and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Connected => "connected",
            State::Up => "up",
        }
    }
}

/// Repeats a query that returns `None` if a guest delays it beyond a time, until the query returns a value.
pub fn repeat<T>(query: impl Fn(Instant) -> Option<T>) -> T {
    loop {
        if let Some(value) = query(Instant::now() + Duration::from_secs(1)) {
            return value;
        }
    }
}
