//! Frames to a driver: a receive queue (virtio 1.3, 5.1.6.3 and 5.1.6.4).

use std::sync::Arc;

use ringway_memory::{View, prefetch_write};
use ringway_switch::{DropReason, Frame, Offload};

use super::fault::RingFault;
use super::ring::{AHEAD, Chain, Head, INDIRECT, LINE, LONGEST_CHAIN, NEXT, RUN, Ring, WRITE, walk};
use crate::guest::{DirtyLog, GuestMemory, Space};

/// What a frame pays for in descriptors of chains: so many, and one more per 16 bytes. When they are used up, frames are
/// lost: buffers that no frame fits into would otherwise be gone through again for each of them.
const STEPS_PER_FRAME: i64 = 32;
/// Most pieces that the first bytes of a receive buffer may be in: every descriptor that holds some of the header has
/// at least one byte of it.
const MAX_HEADER: usize = 12;
/// The last eight bytes of a header of 12 that asks for nothing: all zero but `num_buffers`, which is 1.
const ONE_BUFFER: u64 = 1 << 48;
/// Chains gathered first, for a batch of few frames; then twice as many each time.
const FIRST_RUN: usize = 4;

/// What became of the frames of one delivery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Frames given to the driver.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames for which there was no buffer.
    pub full: u64,
    /// Frames too long for a buffer.
    pub small: u64,
    /// Frames longer than the MTU allows.
    pub long: u64,
}

/// One receive queue.
#[derive(Debug)]
pub struct Receive<R> {
    pub(crate) ring: R,
    /// Bytes of the header before each frame.
    header: usize,
    /// A frame may take several buffers (VIRTIO_NET_F_MRG_RXBUF).
    mergeable: bool,
    /// Longest frame that the MTU allows; segmented ones may be longer (virtio 1.3, 5.1.4.1).
    pub(crate) longest: usize,
    /// Frames may be given: the queue is enabled.
    pub(crate) enabled: bool,
    /// Chains that a frame over several buffers takes, and the bytes in each.
    spans: Vec<(Chain, u32)>,
    /// Where the heads of a run are gathered.
    heads: Box<[Head]>,
    /// Descriptors of chains that this delivery may still go through.
    steps: i64,
    log: Option<Arc<DirtyLog>>,
}

impl<R: Ring> Receive<R> {
    /// A queue whose frames get `header` (10 or 12) bytes before them.
    #[must_use]
    pub fn new(ring: R, header: usize, mergeable: bool) -> Receive<R> {
        let spans = Vec::with_capacity(LONGEST_CHAIN as usize);
        Receive {
            ring,
            header: header.min(MAX_HEADER),
            mergeable,
            longest: usize::MAX,
            enabled: false,
            spans,
            heads: vec![Head::default(); RUN].into(),
            steps: 0,
            log: None,
        }
    }

    /// From now on notes what is written.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Notes that what the ring tells the driver about itself was written.
    pub fn note_ring(&self) {
        if let Some(log) = &self.log {
            // A log that is too small is met again with the next chain.
            let _ = log.mark_all(self.ring.written());
        }
    }

    /// Gives frames to the driver, in order, with one publication.
    ///
    /// # Errors
    /// The ring is not as it must be. What was given stays given.
    #[inline]
    pub fn deliver<'b, 'm: 'b>(
        &mut self,
        guest: &GuestMemory,
        frames: impl Iterator<Item = Frame<'b, 'm>>,
        tally: &mut Tally,
    ) -> Result<(), RingFault> {
        let memory = self.ring.memory(guest).ok_or(RingFault::MemoryLost)?;
        let refreshed = self.ring.refresh(memory);
        let mut space = guest.space();
        self.steps = LONGEST_CHAIN.into();
        let mut result = refreshed;
        let mut heads = std::mem::take(&mut self.heads);
        let prefetch = |space: &Space<'_>, head: &Head| {
            prefetch_write(space.address(head.first.address));
            prefetch_write(space.address(head.first.address.wrapping_add(LINE)));
        };
        // Heads that were gathered and not used yet: from `next` up to `count`.
        let (mut next, mut count, mut want) = (0, 0, FIRST_RUN);
        let (header, longest, logging) = (self.header, self.longest, self.log.is_some());
        let (mut given, mut bytes) = (0, 0);
        for frame in frames {
            if frame.len > longest && frame.offload.is_none_or(|offload| offload.gso_size == 0) {
                tally.long += 1;
                continue;
            }
            if next == count && result.is_ok() {
                next = 0;
                count = 0;
                match self.ring.gather(memory, self.ring.first(), &mut heads[..want]) {
                    Ok(gathered) => count = gathered,
                    Err(fault) => result = Err(fault),
                }
                want = (2 * want).min(RUN);
                heads[..count].iter().take(AHEAD).for_each(|head| prefetch(&space, head));
            }
            if result.is_err() || next == count {
                tally.full += 1;
                continue;
            }
            let head = heads[next];
            if let Some(later) = heads[..count].get(next + AHEAD) {
                prefetch(&space, later);
            }
            next += 1;
            let (address, len, flags) = (head.first.address, head.first.len(), head.first.flags());
            let fits = flags & (NEXT | INDIRECT | WRITE) == WRITE && len as usize >= header + frame.len;
            if fits
                && !logging
                && let Some(buffer) = space.view(address, len)
            {
                write_frame(buffer, header, &frame);
                let chain = Chain { id: head.id, slots: 1 };
                self.ring.give_back(memory, chain, (header + frame.len) as u32);
                given += 1;
                bytes += frame.len as u64;
                continue;
            }
            // It may take several chains, or none; what was gathered is gathered again, so few at a time.
            (count, want) = (next, FIRST_RUN);
            match self.give_pieces(memory, space, self.ring.first(), head, frame) {
                Ok(None) => {
                    given += 1;
                    bytes += frame.len as u64;
                }
                Ok(Some(DropReason::ReceiverTooSmall)) => tally.small += 1,
                Ok(Some(_)) => tally.full += 1,
                Err(fault) => {
                    tally.full += 1;
                    result = Err(fault);
                }
            }
        }
        tally.frames += given;
        tally.bytes += bytes;
        self.heads = heads;
        self.ring.publish(memory);
        if let Some(log) = &self.log {
            log.mark_all(self.ring.written())?;
        }
        result
    }

    /// Gives a frame to chains of any framing, to several of them if need be and allowed.
    #[cold]
    #[inline(never)]
    fn give_pieces(
        &mut self,
        memory: R::Memory<'_>,
        mut space: Space<'_>,
        mut at: R::At,
        mut head: Head,
        frame: Frame<'_, '_>,
    ) -> Result<Option<DropReason>, RingFault> {
        self.steps += STEPS_PER_FRAME + frame.len as i64 / 16;
        if self.steps <= 0 {
            return Ok(Some(DropReason::ReceiverFull));
        }
        let mut seen = 0;
        self.spans.clear();
        let mut source = Source { frame: &frame, in_head: 0, rest: 0, offset: 0, left: frame.len };
        let mut header = HeaderPlace { pieces: [None; MAX_HEADER], count: 0, left: self.header };
        loop {
            let mut written = 0;
            let before = seen;
            let log = self.log.as_deref();
            let chain = walk(&self.ring, memory, &mut space, at, head, |space, descriptor| {
                seen += 1;
                let (address, len, flags) = (descriptor.address, descriptor.len(), descriptor.flags());
                if flags & WRITE == 0 {
                    return Err(RingFault::ReadableInReceive);
                }
                let buffer = space.view(address, len).ok_or(RingFault::BadAddress { address, len })?;
                let used = header.take(address, buffer);
                let filled = buffer.sub(used, buffer.len() - used).map_or(0, |room| source.fill(room));
                let used = (used + filled) as u32;
                written += used;
                log.map_or(Ok(()), |log| log.mark_all([(address, used.into())]))
            })?;
            self.spans.push((chain, written));
            self.steps -= i64::from(seen - before);
            if header.left == 0 && source.left == 0 {
                break;
            }
            let end = seen >= LONGEST_CHAIN || self.spans.len() == usize::from(self.ring.size());
            if !self.mergeable || header.left > 0 || end {
                return Ok(Some(DropReason::ReceiverTooSmall));
            }
            at = self.ring.after(at, chain.slots);
            match self.ring.head(memory, at)? {
                Some(next) => head = next,
                // What was written into buffers that are not given back, nobody sees.
                None => return Ok(Some(DropReason::ReceiverFull)),
            }
        }
        header.write(frame.offload, self.spans.len() as u16);
        if let Some(log) = &self.log {
            // The pages were noted when the frame was copied; the header is younger.
            log.mark_all(header.places())?;
        }
        for &(chain, len) in &self.spans {
            self.ring.give_back(memory, chain, len);
        }
        Ok(None)
    }
}

/// Writes a frame and its header, which fit.
#[inline(always)]
fn write_frame(buffer: View<'_>, header: usize, frame: &Frame<'_, '_>) {
    write_header(buffer, header, frame.offload);
    let mut offset = header;
    let _ = buffer.sub(offset, frame.head_len).is_some_and(|to| to.write_head(frame.head, frame.head_len));
    offset += frame.head_len;
    for rest in frame.rest {
        let _ = buffer.sub(offset, rest.len()).is_some_and(|to| to.copy_from(*rest));
        offset += rest.len();
    }
}

/// Writes the header of a frame in one buffer, unless it is there already: its line then need not be fetched for writing
/// by the driver, who may look at it only.
#[inline(always)]
fn write_header(buffer: View<'_>, len: usize, offload: Option<&Offload>) {
    // Twelve bytes, as two words that overlap.
    let there = len == 12
        && offload.is_none()
        && buffer.first_word() == Some(0)
        && buffer.sub(4, 8).and_then(|tail| tail.first_word()) == Some(ONE_BUFFER);
    if !there {
        put_header(buffer, len, offload);
    }
}

#[cold]
fn put_header(buffer: View<'_>, len: usize, offload: Option<&Offload>) {
    let _ = buffer.write(&full_header(offload, 1)[..len]);
}

fn full_header(offload: Option<&Offload>, buffers: u16) -> [u8; MAX_HEADER] {
    let mut header = [0; MAX_HEADER];
    if let Some(offload) = offload {
        header[..10].copy_from_slice(&Offload::encode(Some(offload)));
    }
    header[10..].copy_from_slice(&buffers.to_le_bytes());
    header
}

/// Where the header of a frame goes: it may be split over as many descriptors as it has bytes.
struct HeaderPlace<'m> {
    /// Each with its guest physical address.
    pieces: [Option<(u64, View<'m>)>; MAX_HEADER],
    count: usize,
    left: usize,
}

impl<'m> HeaderPlace<'m> {
    /// Takes its part of a buffer. Returns how many bytes that is.
    fn take(&mut self, address: u64, buffer: View<'m>) -> usize {
        let part = buffer.len().min(self.left);
        if part > 0 {
            self.pieces[self.count] = buffer.sub(0, part).map(|piece| (address, piece));
            self.count += 1;
            self.left -= part;
        }
        part
    }

    fn write(&self, offload: Option<&Offload>, buffers: u16) {
        let header = full_header(offload, buffers);
        let mut at = 0;
        for (_, piece) in self.pieces[..self.count].iter().flatten() {
            let _ = piece.write(&header[at..at + piece.len()]);
            at += piece.len();
        }
    }

    /// Guest physical addresses and lengths.
    fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pieces[..self.count].iter().flatten().map(|(address, piece)| (*address, piece.len() as u64))
    }
}

/// Where copying a frame has come to.
struct Source<'f, 'b, 'm> {
    frame: &'f Frame<'b, 'm>,
    in_head: usize,
    rest: usize,
    offset: usize,
    left: usize,
}

impl Source<'_, '_, '_> {
    /// Copies as much as there is and as fits. Returns how much that was.
    fn fill(&mut self, room: View<'_>) -> usize {
        let mut done = 0;
        while done < room.len() && self.left > 0 {
            let (want, part);
            if self.in_head < self.frame.head_len {
                want = self.frame.head_len - self.in_head;
                part = want.min(room.len() - done);
                let bytes = &self.frame.head.0[self.in_head..self.in_head + part];
                let _ = room.sub(done, part).is_some_and(|to| to.write(bytes));
                self.in_head += part;
            } else {
                let Some(rest) = self.frame.rest.get(self.rest) else { break };
                want = rest.len() - self.offset;
                part = want.min(room.len() - done);
                if let (Some(to), Some(from)) = (room.sub(done, part), rest.sub(self.offset, part)) {
                    let _ = to.copy_from(from);
                }
                self.offset += part;
                if part == want {
                    (self.rest, self.offset) = (self.rest + 1, 0);
                }
            }
            done += part;
            self.left -= part;
        }
        done
    }
}
