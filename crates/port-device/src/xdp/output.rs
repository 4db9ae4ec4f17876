//! Frames to a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use ringway_memory::{Kept, Mapping, View};
use ringway_netdevice::xdp::{Consumer, Entry, METADATA, Producer, Queued, Transfer};
use ringway_switch::{Accepts, Counters, DropReason, Frame, Frames, Offload, Output, OutputCapabilities, PortFault};

use super::metadata::leave_checksum;
use super::queue::{RECEIVE, TRANSMIT, chunk};
use super::sending::Sending;
use ringway_port::copy::{Source, write};

/// Most pieces of a frame: the kernel takes one more than `MAX_SKB_FRAGS` of them in copy mode.
const MAX_PIECES: usize = 18;

/// What a device takes.
pub(super) struct Device {
    /// Bytes of the longest frame.
    pub(super) longest: Arc<AtomicUsize>,
    /// It is up and has a carrier.
    pub(super) is_running: Arc<AtomicBool>,
    /// Frames may have several pieces.
    pub(super) takes_pieces: bool,
    /// Bytes for metadata before each piece: [`METADATA`], or 0 if it takes none.
    pub(super) before: usize,
}

/// The output of an XDP port.
pub(super) struct XdpOutput {
    sending: Arc<Sending>,
    memory: Arc<Mapping>,
    pub(super) ring: Producer<2>,
    completion: Consumer<1>,
    chunks: Chunks,
    device: Device,
}

/// Chunks that the kernel does not have. The last one given back is the first one used: it is in the caches.
struct Chunks {
    /// Bytes of a chunk, a power of two.
    bytes: usize,
    free: Vec<u64>,
    /// By chunk, and outliving the switch: [`FREE`], or where the chunk is in the transmit ring ([`place`]). A chunk that was cancelled could come
    /// back a second time, if the device came up at that moment.
    places: Kept<[AtomicU32]>,
}

/// The chunk is free.
const FREE: u32 = 0;

/// Says that a chunk is in the entry of the transmit ring with this index, but for its highest bit.
fn place(index: u32) -> u32 {
    index << 1 | 1
}

impl Chunks {
    /// The chunks of a ring. Those that a predecessor has given to the kernel come back by the completion ring.
    fn new(bytes: usize, places: Kept<[AtomicU32]>, queued: &Queued) -> Chunks {
        let mut chunks = Chunks { bytes, free: Vec::with_capacity(TRANSMIT as usize), places };
        for (number, place) in (u64::from(RECEIVE)..).zip(chunks.places.iter()) {
            let at = place.load(Ordering::Relaxed);
            if at == FREE || !queued.was_given(at >> 1) {
                place.store(FREE, Ordering::Relaxed);
                chunks.free.push(number * bytes as u64);
            }
        }
        chunks
    }

    /// Returns the number of the chunk that has this address, from the first one.
    fn number(&self, address: u64) -> usize {
        (address as usize >> self.bytes.trailing_zeros()).wrapping_sub(RECEIVE as usize)
    }

    /// Takes the chunk back that has this address.
    fn put(&mut self, address: u64) {
        let number = self.number(address);
        if let Some(place) = self.places.get(number).filter(|place| place.load(Ordering::Relaxed) != FREE) {
            place.store(FREE, Ordering::Relaxed);
            self.free.push(address & !(self.bytes as u64 - 1));
        }
    }

    /// Takes a chunk for the entry with this index.
    fn take(&mut self, index: u32) -> Option<u64> {
        let address = self.free.pop()?;
        self.places.get(self.number(address))?.store(place(index), Ordering::Relaxed);
        Some(address)
    }
}

impl XdpOutput {
    /// `places`: a word for each chunk, zeroes at first.
    pub(super) fn new(
        sending: Arc<Sending>,
        memory: Arc<Mapping>,
        (ring, completion): (Producer<2>, Consumer<1>),
        places: Kept<[AtomicU32]>,
        device: Device,
    ) -> XdpOutput {
        let chunks = Chunks::new(chunk(sending.transfer()), places, &sending.queued);
        let mut output = XdpOutput { sending, memory, ring, completion, chunks, device };
        output.reclaim();
        output
    }

    /// Takes the chunks of sent frames back.
    pub(super) fn reclaim(&mut self) {
        let count = self.completion.available();
        for entry in 0..count {
            let [address] = self.completion.peek(entry);
            self.chunks.put(address);
        }
        self.completion.advance(count);
        self.completion.release();
    }

    /// Returns true if the device is down. Counts the frames that waited for it.
    pub(super) fn is_down(&mut self, counters: &Counters) -> Result<bool, PortFault> {
        // The driver would keep the frames, and send them when the carrier is back. In copy mode the kernel tells of each lost frame.
        let waits = self.sending.transfer() == Transfer::ZeroCopy && !self.device.is_running.load(Ordering::Relaxed);
        let is_down = self.sending.is_down(|cancelled| {
            counters.drop_out(DropReason::ReceiverDown, std::mem::take(&mut cancelled.frames));
            cancelled.chunks.drain(..).for_each(|chunk| self.chunks.put(chunk));
        })?;
        Ok(is_down || waits)
    }

    /// The chunk that is used next.
    #[cfg(test)]
    pub(super) fn next_chunk(&self) -> u64 {
        *self.chunks.free.last().expect("a free chunk")
    }

    /// The number of chunks that the kernel does not have.
    #[cfg(test)]
    pub(super) fn free_chunks(&self) -> usize {
        self.chunks.free.len()
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
        let before = self.device.before;
        let most = self.chunks.bytes - before;
        let pieces = if frame.len() <= most { 1 } else { frame.len().div_ceil(most) };
        if frame.len() > longest || pieces > if self.device.takes_pieces { MAX_PIECES } else { 1 } {
            return Err(DropReason::ReceiverTooSmall);
        }
        if !self.make_room(pieces, has_called) {
            return Err(DropReason::ReceiverFull);
        }
        let mut left = frame.len();
        let mut source = Source::new(frame);
        while left > 0 {
            let len = left.min(most);
            let chunk = self.chunks.take(self.ring.next()).ok_or(DropReason::ReceiverFull)?;
            let address = chunk + before as u64;
            let room = self.memory.view(address as usize, len).ok_or(DropReason::BadBuffer)?;
            if pieces == 1 {
                write(room, frame);
            } else {
                source.fill(room);
            }
            let offload = frame.offload().filter(|_| left == frame.len());
            let has_metadata = offload.is_some_and(|offload| self.finish(frame, offload, chunk, room));
            left -= len;
            self.ring.put(Entry { address, len: len as u32, continues: left > 0, has_metadata }.words());
        }
        Ok(())
    }

    /// Leaves a frame's checksum to the device, or writes it. The frame's first piece is in `room`. Returns true if it has metadata.
    fn finish(&self, frame: &Frame<'_, '_>, offload: &Offload, chunk: u64, room: View<'_>) -> bool {
        let metadata = self.memory.view(chunk as usize, METADATA);
        if metadata.is_some_and(|metadata| leave_checksum(metadata, frame, offload)) {
            return true;
        }
        // The switch has checked that the field is in a transport header within the frame's first bytes.
        let start = usize::from(offload.csum_start);
        room.put(start + usize::from(offload.csum_offset), &frame.checksum_from(start));
        false
    }
}

impl Output for XdpOutput {
    fn capabilities(&self) -> OutputCapabilities {
        let accepts = if self.device.before > 0 { Accepts::CSUM } else { Accepts::NOTHING };
        OutputCapabilities { accepts, ..OutputCapabilities::default() }
    }

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
}
