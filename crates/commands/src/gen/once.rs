//! Frames that are written once and then sent again unchanged.

use std::io;
use std::time::Duration;

use ringway_traffic::Endpoint;

/// Lets the first frames through as written, until every buffer of the ring holds one; from then on the buffers go out
/// again untouched, so that the source costs next to nothing. All frames must have one size.
pub struct Once<E> {
    inner: E,
    to_write: u64,
    template: Vec<u8>,
}

impl<E: Endpoint> Once<E> {
    /// Writes as many frames as the ring has `slots`.
    pub fn new(inner: E, slots: u64) -> Once<E> {
        Once { inner, to_write: slots, template: Vec::new() }
    }

    /// The endpoint itself.
    pub fn into_inner(self) -> E {
        self.inner
    }
}

impl<E: Endpoint> Endpoint for Once<E> {
    fn tx_room(&mut self) -> usize {
        self.inner.tx_room()
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.to_write == 0 {
            return self.inner.tx_repeat(&self.template);
        }
        let last = self.to_write == 1;
        let pushed = self.inner.tx_push(len, |frame| {
            fill(frame);
            if last {
                self.template = frame.to_vec();
            }
        });
        self.to_write -= u64::from(pushed);
        pushed
    }

    fn tx_flush(&mut self) {
        self.inner.tx_flush();
    }

    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize {
        self.inner.rx_batch(max, take)
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        self.inner.wait(for_rx, timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_traffic::memory;

    #[test]
    fn after_a_lap_the_last_written_frame_is_repeated() {
        let (near, mut far) = memory::pair(100);
        let mut once = Once::new(near, 4);
        for number in 0..10u8 {
            assert!(once.tx_push(20, |frame| frame.fill(number)));
        }
        let mut seen = Vec::new();
        far.rx_batch(100, |frame| seen.push((frame.len(), frame[0])));
        assert_eq!(seen, [0, 1, 2, 3, 3, 3, 3, 3, 3, 3].map(|number| (20, number)));
    }
}
