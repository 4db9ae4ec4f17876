//! What an endpoint tells its program.

use super::peer::Connection;

/// What [`crate::Endpoint::poll`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The peer has accepted a connection.
    Connected {
        /// The connection.
        connection: Connection,
    },
    /// A peer has connected to a service of this endpoint.
    Accepted {
        /// The connection.
        connection: Connection,
        /// The service.
        service: u32,
    },
    /// A message, where it was received. It is there until the next call of `poll`.
    Message {
        /// The connection.
        connection: Connection,
        /// The message.
        data: &'a [u8],
    },
    /// A connection that had no room for a message has room again.
    Room {
        /// The connection.
        connection: Connection,
    },
    /// The peer sends no further messages. The other direction is as before.
    Finished {
        /// The connection.
        connection: Connection,
    },
    /// The connection is over. All before `acknowledged` have arrived at the peer, all before `received` here.
    Ended {
        /// The connection.
        connection: Connection,
        /// Why.
        reason: Reason,
        /// Number of own messages that the peer has acknowledged, with the END.
        acknowledged: u64,
        /// Number of the peer's messages that have arrived without a gap, with the END.
        received: u64,
    },
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Both ends have closed it.
    #[error("both ends have closed the connection")]
    Closed,
    /// Nobody listens.
    #[error("nobody listens for this service at the peer")]
    NobodyListens,
    /// The peer has no room for a connection.
    #[error("the peer has no room for another connection")]
    NoRoom,
    /// The peer's program has ended it.
    #[error("the peer has ended the connection")]
    Reset,
    /// The peer has not answered for too long.
    #[error("the peer does not answer")]
    NoAnswer,
    /// A long message is longer than the receiver has announced, or its fragments contradict one another.
    #[error("a message is longer than its receiver takes")]
    TooLong,
    /// The peer speaks another version.
    #[error("the peer speaks another version of LWEP")]
    OtherVersion,
    /// The peer does not know the connection: it was restarted.
    #[error("the peer does not know the connection any more")]
    Unknown,
    /// This program has aborted it.
    #[error("this end has aborted the connection")]
    Aborted,
}

impl Reason {
    /// The reason in a RESET.
    pub const fn number(self) -> u8 {
        match self {
            Self::NobodyListens => 1,
            Self::NoRoom => 2,
            Self::NoAnswer => 4,
            Self::TooLong => 5,
            Self::OtherVersion => 6,
            Self::Closed | Self::Reset | Self::Unknown | Self::Aborted => 3,
        }
    }

    /// Returns true if a RESET with this reason is the answer to an OPEN.
    pub const fn refuses(self) -> bool {
        matches!(self, Self::NobodyListens | Self::NoRoom | Self::OtherVersion)
    }

    /// What a RESET's reason means to the end that gets it.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::NobodyListens,
            2 => Self::NoRoom,
            4 => Self::NoAnswer,
            5 => Self::TooLong,
            6 => Self::OtherVersion,
            _ => Self::Reset,
        }
    }
}
