//! Frames to a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringway_memory::Mapping;
use ringway_switch::{Counters, DropReason, Frame, Frames, Output, PortFault};

use super::queue::{CHUNK, Entry, RECEIVE, TRANSMIT};
use super::ring::{Consumer, Producer};
use super::sending::Sending;
use crate::copy::{Source, write};

/// Most pieces of a frame: the kernel takes one more than `MAX_SKB_FRAGS` of them in copy mode.
const MAX_PIECES: usize = 18;

/// What a device takes.
pub(super) struct Device {
    /// Bytes of the longest frame.
    pub(super) longest: Arc<AtomicUsize>,
    /// Frames may have several pieces.
    pub(super) takes_pieces: bool,
}

/// The output of an XDP port.
pub(super) struct XdpOutput {
    sending: Arc<Sending>,
    memory: Arc<Mapping>,
    ring: Producer<2>,
    completion: Consumer<1>,
    chunks: Chunks,
    device: Device,
}

/// Chunks that the kernel does not have. The last one given back is the first one used: it is in the caches.
struct Chunks {
    free: Vec<u64>,
    /// By chunk. A chunk that was cancelled could come back a second time, if the device came up at that moment.
    is_free: [bool; TRANSMIT as usize],
}

impl Chunks {
    fn new() -> Chunks {
        let free = (RECEIVE..RECEIVE + TRANSMIT).map(|chunk| u64::from(chunk) * CHUNK as u64).collect();
        Chunks { free, is_free: [true; TRANSMIT as usize] }
    }

    /// Takes the chunk back that has this address.
    fn put(&mut self, address: u64) {
        let chunk = (address / CHUNK as u64).wrapping_sub(RECEIVE.into());
        if let Some(is_free @ false) = usize::try_from(chunk).ok().and_then(|chunk| self.is_free.get_mut(chunk)) {
            *is_free = true;
            self.free.push(address - address % CHUNK as u64);
        }
    }

    fn take(&mut self) -> Option<u64> {
        let address = self.free.pop()?;
        self.is_free[(address / CHUNK as u64) as usize - RECEIVE as usize] = false;
        Some(address)
    }
}

impl XdpOutput {
    pub(super) fn new(
        sending: Arc<Sending>,
        memory: Arc<Mapping>,
        ring: Producer<2>,
        completion: Consumer<1>,
        device: Device,
    ) -> XdpOutput {
        XdpOutput { sending, memory, ring, completion, chunks: Chunks::new(), device }
    }

    /// Takes the chunks of sent frames back.
    fn reclaim(&mut self) {
        let count = self.completion.available();
        for entry in 0..count {
            let [address] = self.completion.peek(entry);
            self.chunks.put(address);
        }
        self.completion.advance(count);
        self.completion.release();
    }

    /// Returns true if the device is down. Counts the frames that waited for it.
    fn is_down(&mut self, counters: &Counters) -> Result<bool, PortFault> {
        self.sending.is_down(|cancelled| {
            counters.drop_out(DropReason::ReceiverDown, std::mem::take(&mut cancelled.frames));
            cancelled.chunks.drain(..).for_each(|chunk| self.chunks.put(chunk));
        })
    }

    fn has_room(&mut self, pieces: usize) -> bool {
        self.chunks.free.len() >= pieces && self.ring.free() >= pieces
    }

    /// Makes room for a frame. A batch has the kernel send once (`has_called`).
    fn make_room(&mut self, pieces: usize, has_called: &mut bool) -> bool {
        if self.has_room(pieces) {
            return true;
        }
        if !std::mem::replace(has_called, true) {
            self.ring.publish();
            self.sending.send();
        }
        self.reclaim();
        self.has_room(pieces)
    }

    /// Queues a frame.
    pub(super) fn queue(
        &mut self,
        frame: &Frame<'_, '_>,
        longest: usize,
        has_called: &mut bool,
    ) -> Result<(), DropReason> {
        let pieces = frame.len().div_ceil(CHUNK);
        if frame.len() > longest || pieces > if self.device.takes_pieces { MAX_PIECES } else { 1 } {
            return Err(DropReason::ReceiverTooSmall);
        }
        if !self.make_room(pieces, has_called) {
            return Err(DropReason::ReceiverFull);
        }
        let mut left = frame.len();
        let mut source = Source::new(frame);
        while left > 0 {
            let len = left.min(CHUNK);
            let address = self.chunks.take().ok_or(DropReason::ReceiverFull)?;
            let room = self.memory.view(address as usize, len).ok_or(DropReason::BadBuffer)?;
            if pieces == 1 {
                write(room, frame);
            } else {
                source.fill(room);
            }
            left -= len;
            self.ring.put(Entry { address, len: len as u32, continues: left > 0 }.words());
        }
        Ok(())
    }
}

impl Output for XdpOutput {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        self.reclaim();
        let is_down = self.is_down(counters);
        if is_down != Ok(false) {
            counters.drop_out(DropReason::ReceiverDown, frames.count() as u64);
            return is_down.map(|_| ());
        }
        let longest = self.device.longest.load(Ordering::Relaxed);
        let (mut delivered, mut bytes, mut has_called) = (0, 0, false);
        for frame in frames {
            match self.queue(&frame, longest, &mut has_called) {
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

    fn count_late(&mut self, counters: &Counters) {
        self.sending.send();
        let _ = self.is_down(counters);
    }
}
