//! What came of waking a client.

/// What came of news for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// Whoever waits for them is told, or will be.
    Done,
    /// A call is pending: [`Port::ring_pending`] is to be called when it is due.
    Pending {
        /// Which one.
        call: Pending,
        /// In nanoseconds.
        due: u64,
    },
    /// That cost the port its place: [`Port::fault`].
    Fault,
}

/// What tells a pending call from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// The port holds it back: the time of the last call in nanoseconds.
    After(u64),
    /// The client's side asked for it: the time it named.
    Asked(u64),
}
