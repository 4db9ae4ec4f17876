//! One attachment to a network under test, as a traffic generator sees it.

/// Something frames can be put into and taken from: a process port, a TAP device, a VDE socket.
///
/// The generator is generic over it, so that one loop, compiled for each kind, drives every peer alike.
/// Nothing here blocks; [`Endpoint::wait`] is the only call that may sleep.
pub trait Endpoint {
    /// Frames that fit now without waiting. A lower bound: it may grow at any time.
    fn tx_room(&mut self) -> usize;

    /// Queues one frame of `len` bytes, written in place by `fill` (which gets exactly `len` bytes of unspecified
    /// content). Returns false, without calling `fill`, when there is no room.
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool;

    /// Queues one frame whose `len` bytes are what the transmit buffer at this place in the ring held on an earlier
    /// lap, untouched (what `pkt-gen` does once its ring is filled). Kinds without such memory copy `template`.
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        self.tx_push(template.len(), |frame| frame.copy_from_slice(template))
    }

    /// The same up to `most` times. Returns how often there was room.
    #[inline]
    fn tx_repeat_many(&mut self, template: &[u8], most: usize) -> usize {
        (0..most).take_while(|_| self.tx_repeat(template)).count()
    }

    /// Makes everything queued visible to the other side, waking it when it asks for that.
    fn tx_flush(&mut self);

    /// Hands up to `max` received frames to `take`, in order, and gives their buffers back. Returns how many.
    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize;

    /// Sleeps until a frame can be received (`for_rx`) or sent, or until `timeout` has passed.
    ///
    /// # Errors
    /// The network went away: the message says how.
    fn wait(&mut self, for_rx: bool, timeout: std::time::Duration) -> std::io::Result<()>;
}
