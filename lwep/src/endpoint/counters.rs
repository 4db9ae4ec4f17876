//! What an endpoint has counted.

/// Frames and messages since the endpoint was made. Every frame that is not used is counted under its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were sent for the first time, fragments counted one by one.
    pub messages_sent: u64,
    /// Messages that were given to the program, or added to a long one.
    pub messages_received: u64,
    /// Frames that were sent, with repetitions, acknowledgements and all others.
    pub frames_sent: u64,
    /// Frames that were received.
    pub frames_received: u64,
    /// Messages that were sent again.
    pub repeated: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Messages that had arrived before.
    pub duplicates: u64,
    /// Frames that are not LWEP.
    pub foreign: u64,
    /// Frames whose header is cut, contradicts itself, or is unknown.
    pub malformed: u64,
    /// Frames of another version.
    pub other_version: u64,
    /// Frames with a wrong checksum, or without one on a connection with checksums.
    pub bad_checksum: u64,
    /// Frames for no connection, or with a wrong secret or source.
    pub no_connection: u64,
    /// Messages with numbers outside the window.
    pub outside_window: u64,
    /// Acknowledgements of what was never sent.
    pub bad_acknowledgement: u64,
    /// Messages for which there was no free buffer.
    pub no_buffer: u64,
    /// Requests for connections that were refused or displaced.
    pub refused: u64,
    /// Answers to strangers that the rate limit has suppressed.
    pub unanswered: u64,
}
