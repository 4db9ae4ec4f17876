//! Any link as an endpoint.

use std::fmt;
use std::io;
use std::time::Duration;

use ringway_link::{Buffer, Counts, Interface, Link};
use serde::Serialize;

use crate::endpoint::Endpoint;

/// An endpoint at a link. Its frames are written into the link's buffers, which are sent by turns.
#[derive(Debug)]
pub struct LinkEndpoint<L> {
    link: L,
    /// The buffers to send from. Frame `n` has buffer `n` modulo their number.
    buffers: Vec<Buffer>,
    /// Frames queued.
    queued: u64,
    /// Frames of which the device no longer reads the buffers.
    sent: u64,
    received: u64,
    /// The length of a frame that the link does not take; 0: none.
    too_long: usize,
}

impl<L: Link> LinkEndpoint<L> {
    /// Sends from the link's buffers, as many as it can have under way.
    pub fn new(mut link: L) -> LinkEndpoint<L> {
        let mut buffers = link.take_buffers();
        buffers.truncate(link.room());
        LinkEndpoint { link, buffers, queued: 0, sent: 0, received: 0, too_long: 0 }
    }

    /// Returns the link.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// Returns what the link has counted.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        LinkCounters::new(self.queued + self.received, self.link.counts())
    }

    /// Returns the number of buffers that the device does not read, as far as known.
    #[inline]
    fn free(&mut self) -> usize {
        self.buffers.len() - (self.queued - self.sent) as usize
    }

    /// Queues the next buffer, after `fill` has written its frame.
    #[inline]
    fn push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Interface { front, longest, .. } = *self.link.interface();
        if len > longest {
            self.too_long = len;
            return false;
        }
        if self.free() == 0 {
            self.sent = self.link.sent();
        }
        // Without room in the link `fill` must not be called.
        if self.free() == 0 || self.link.room() == 0 {
            return false;
        }
        let next = (self.queued % self.buffers.len() as u64) as usize;
        let Some(frame) = self.buffers[next].get_mut(front..front.saturating_add(len)) else { return false };
        fill(frame);
        let is_queued = self.link.send(&mut self.buffers[next], len, None);
        self.queued += u64::from(is_queued);
        is_queued
    }
}

impl<L: Link> Endpoint for LinkEndpoint<L> {
    #[inline]
    fn tx_room(&mut self) -> usize {
        self.sent = self.link.sent();
        self.free().min(self.link.room())
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        self.push(len, fill)
    }

    #[inline]
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        self.push(template.len(), |_| {})
    }

    #[inline]
    fn tx_flush(&mut self) {
        self.link.flush();
    }

    #[inline]
    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < max {
            let Some(received) = self.link.peek() else { break };
            take(received.bytes);
            self.link.release();
            taken += 1;
        }
        self.received += taken as u64;
        taken
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        if self.too_long > 0 {
            let Interface { name, longest, .. } = self.link.interface();
            let what = format!("a frame of {} bytes: {name} takes {longest} with buffers of this size", self.too_long);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.link.wait(!for_rx, timeout)
    }
}

/// Counts of a link since it was opened. The field names are part of the command's JSON output: do not rename them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LinkCounters {
    /// Frames sent and received.
    pub frames: u64,
    /// Times that this side woke the device.
    pub kicks: u64,
    /// Times that the device woke this side.
    pub calls: u64,
    /// Other register accesses.
    pub accesses: u64,
    /// Received frames that were not whole.
    pub dropped: u64,
    /// Frames that were received while there was no place for them.
    pub lost: u64,
    /// Queued frames that the device or the kernel refused.
    pub unsent: u64,
    /// `kicks`, for each frame.
    pub kicks_per_frame: f64,
    /// `calls`, for each frame.
    pub calls_per_frame: f64,
    /// `accesses`, for each frame.
    pub accesses_per_frame: f64,
}

impl LinkCounters {
    fn new(frames: u64, counts: Counts) -> LinkCounters {
        let Counts { kicks, calls, accesses, dropped, lost, unsent } = counts;
        let each = |count: u64| count as f64 / frames.max(1) as f64;
        let (kicks_per_frame, calls_per_frame, accesses_per_frame) = (each(kicks), each(calls), each(accesses));
        LinkCounters {
            frames,
            kicks,
            calls,
            accesses,
            dropped,
            lost,
            unsent,
            kicks_per_frame,
            calls_per_frame,
            accesses_per_frame,
        }
    }
}

impl fmt::Display for LinkCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "per frame: {:.4} kicks, {:.4} calls, {:.4} other register accesses",
            self.kicks_per_frame, self.calls_per_frame, self.accesses_per_frame
        )?;
        if self.dropped > 0 { write!(f, "; {} dropped", self.dropped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use ringway_link::memory::{MemoryOptions, pair};

    use super::*;
    use crate::{Checker, FrameSpec, Frames, Level, Limits, Origin, RxOptions, TxOptions, Watch, receive, transmit};

    #[test]
    fn frames_pass_a_link_by_turns_of_its_buffers() {
        let options = MemoryOptions { capacity: 64, buffers: 100, ..MemoryOptions::default() };
        let (near, far) = pair(&options).unwrap();
        let (mut near, mut far) = (LinkEndpoint::new(near), LinkEndpoint::new(far));
        assert_eq!(near.tx_room(), 64);
        let mut frames = Frames::new(&FrameSpec { size: 200, flows: 3, ..FrameSpec::default() }).unwrap();
        let mut checker = Checker::new(Level::Full, Origin::Zero);
        for _ in 0..5 {
            let limits = Limits { frames: Some(50), duration: None };
            transmit(&mut near, &mut frames, &TxOptions { limits, ..TxOptions::default() }, &mut Watch::none())
                .unwrap();
            receive(&mut far, &mut checker, None, &RxOptions { limits, ..RxOptions::default() }, &mut Watch::none())
                .unwrap();
        }
        assert_eq!((checker.report().frames, checker.report().is_clean()), (250, true));
        for _ in 0..64 {
            assert!(near.tx_push(60, |frame| frame.fill(0)));
        }
        assert_eq!((near.tx_room(), near.tx_push(60, |_| panic!("there is no room"))), (0, false));
        assert_eq!((near.counters().frames, far.counters().frames), (314, 250));
        near.wait(false, Duration::ZERO).unwrap();
        assert!(!far.tx_push(5000, |_| panic!("no buffer is so large")));
        let error = far.wait(false, Duration::ZERO).unwrap_err().to_string();
        assert_eq!(error, "a frame of 5000 bytes: memory2 takes 2048 with buffers of this size");
    }
}
