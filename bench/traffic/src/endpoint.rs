//! One attachment to a network under test, as a traffic generator sees it.

/// A connection that sends and receives frames: a process port, a TAP device, a VDE socket.
///
/// The generator is generic over this trait, so that one loop, compiled for each kind, drives every peer in the same
/// way. Only [`Endpoint::wait`] may sleep; the other methods do not block.
pub trait Endpoint {
    /// Returns how many frames can be queued now without waiting. This is a lower bound: the room may grow at any time.
    fn tx_room(&mut self) -> usize;

    /// Queues one frame of `len` bytes, which `fill` writes in place (it gets exactly `len` bytes of unspecified
    /// contents). Returns false, without calling `fill`, when there is no room.
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool;

    /// Queues one frame without writing it: its `len` bytes are those that the next transmit buffer of the ring holds
    /// from an earlier lap (as `pkt-gen` does once its ring is filled). Endpoints without such memory copy `template`.
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        self.tx_push(template.len(), |frame| frame.copy_from_slice(template))
    }

    /// Queues up to `most` frames like [`Endpoint::tx_repeat`]. Returns their number.
    #[inline]
    fn tx_repeat_many(&mut self, template: &[u8], most: usize) -> usize {
        (0..most).take_while(|_| self.tx_repeat(template)).count()
    }

    /// Publishes all queued frames, and wakes the other side if it has asked for that.
    fn tx_flush(&mut self);

    /// Calls `take` with up to `max` received frames, in order, and gives their buffers back. Returns their number.
    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize;

    /// Sleeps until a frame can be received (`for_rx`) or sent, or until `timeout` has passed.
    ///
    /// # Errors
    /// The other side has disconnected: the message says how.
    fn wait(&mut self, for_rx: bool, timeout: std::time::Duration) -> std::io::Result<()>;
}
