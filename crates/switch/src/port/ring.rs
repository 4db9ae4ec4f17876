//! Result of waking a client.

/// Result of waking the client of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The client was called, does not want a call, or will be called by another thread.
    Done,
    /// A call is pending: a poller must call [`super::Port::ring_pending`] when it is due.
    Pending {
        /// The pending call.
        call: Pending,
        /// When the call is due, in nanoseconds.
        due: u64,
    },
    /// The port must end: see [`super::Port::fault`].
    Fault,
}

/// Why a call is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Moderation holds the call back. The value is the time of the last call, in nanoseconds.
    After(u64),
    /// The bell asked for the call ([`super::CallResult::Later`]). The value is the time that the bell named, in
    /// nanoseconds.
    CallResult(u64),
}
