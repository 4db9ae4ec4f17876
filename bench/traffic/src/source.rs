//! What a sender sends.

use std::time::Duration;

/// A source of frames to send: [`crate::Frames`] makes them, [`crate::Replay`] takes them from a file.
pub trait Source {
    /// Returns the bytes of the next frame, or `None` when there is no more.
    fn next_len(&self) -> Option<usize>;

    /// Writes the next frame into `frame`, which has exactly [`next_len`](Source::next_len) bytes.
    fn fill(&mut self, frame: &mut [u8]);

    /// Returns the time since the start of the run before which the next frame must not be sent.
    fn due(&self) -> Duration {
        Duration::ZERO
    }
}
