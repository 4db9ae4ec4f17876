//! Frames to a device.

use std::sync::Arc;

use ringway_memory::Mapping;
use ringway_switch::{Counters, DropReason, Frame, Frames, Output, PortFault};
use rustix::net::xdp::XdpDescOptions;

use super::queue::{CHUNK, RECEIVE, TRANSMIT};
use super::ring::{Consumer, Producer};
use super::sending::Sending;
use crate::copy::{Source, write};

/// Most pieces of a frame: the kernel takes one more than `MAX_SKB_FRAGS` of them in copy mode.
const MAX_PIECES: usize = 18;

/// The output of an XDP port.
pub(super) struct XdpOutput {
    sending: Arc<Sending>,
    memory: Arc<Mapping>,
    ring: Producer<2>,
    completion: Consumer<1>,
    /// Chunks that the kernel does not have. The last one given back is the first one used: it is in the caches.
    free: Vec<u64>,
    most_pieces: usize,
}

impl XdpOutput {
    pub(super) fn new(
        sending: Arc<Sending>,
        memory: Arc<Mapping>,
        ring: Producer<2>,
        completion: Consumer<1>,
        takes_pieces: bool,
    ) -> XdpOutput {
        let free = (RECEIVE..RECEIVE + TRANSMIT).map(|chunk| u64::from(chunk) * CHUNK as u64).collect();
        XdpOutput { sending, memory, ring, completion, free, most_pieces: if takes_pieces { MAX_PIECES } else { 1 } }
    }

    /// Takes the chunks of sent frames back.
    fn reclaim(&mut self) {
        let count = self.completion.available();
        for entry in 0..count {
            let [address] = self.completion.peek(entry);
            if self.free.len() < TRANSMIT as usize {
                self.free.push(address - address % CHUNK as u64);
            }
        }
        self.completion.advance(count);
        self.completion.release();
    }

    /// Queues a frame.
    fn queue(&mut self, frame: &Frame<'_, '_>) -> Result<(), DropReason> {
        let pieces = frame.len().div_ceil(CHUNK);
        if pieces > self.most_pieces {
            return Err(DropReason::ReceiverTooSmall);
        }
        if self.free.len() < pieces || self.ring.free() < pieces {
            self.ring.publish();
            self.sending.send();
            self.reclaim();
            if self.free.len() < pieces || self.ring.free() < pieces {
                return Err(DropReason::ReceiverFull);
            }
        }
        let mut left = frame.len();
        let mut source = Source::new(frame);
        while left > 0 {
            let len = left.min(CHUNK);
            let chunk = self.free.pop().ok_or(DropReason::ReceiverFull)?;
            let room = self.memory.view(chunk as usize, len).ok_or(DropReason::BadBuffer)?;
            if pieces == 1 {
                write(room, frame);
            } else {
                source.fill(room);
            }
            left -= len;
            let options = if left > 0 { XdpDescOptions::XDP_PKT_CONTD } else { XdpDescOptions::empty() };
            self.ring.put([chunk, u64::from(options.bits()) << 32 | len as u64]);
        }
        Ok(())
    }
}

impl Output for XdpOutput {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        self.reclaim();
        let (mut delivered, mut bytes) = (0, 0);
        for frame in frames {
            match self.queue(&frame) {
                Ok(()) => {
                    delivered += 1;
                    bytes += frame.len() as u64;
                }
                Err(reason) => counters.drop_out(reason, 1),
            }
        }
        // The bell has the kernel send.
        self.ring.publish();
        counters.add_out(delivered, bytes);
        Ok(())
    }
}
