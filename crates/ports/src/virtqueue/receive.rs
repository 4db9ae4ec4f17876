//! Frames to a driver: a receive queue (virtio 1.3, 5.1.6.3 and 5.1.6.4).

use std::sync::Arc;

use ringway_memory::{HEAD_BYTES, Head as FirstBytes, View, prefetch_write};
use ringway_switch::{DropReason, Frame, Offload};

use super::fault::RingFault;
use super::ring::{Chain, Head, LONGEST_CHAIN, RUN, Ring, WRITE, plain, walk};
use crate::copy::{self, FEW, ROW, Source, prefetch};
use crate::guest::{DirtyLog, GuestMemory, Space};
use crate::vhost_user::Taken;

/// What a frame pays for in descriptors of chains and pieces of their buffers: so many, and one more per 16 bytes. When they are
/// used up, frames are lost: buffers that no frame fits into would otherwise be gone through again for each of them.
const STEPS_PER_FRAME: i64 = 32;
/// Most pieces that the first bytes of a receive buffer may be in: every descriptor that holds some of the header has
/// at least one byte of it.
const MAX_HEADER: usize = 12;
/// The last eight bytes of a header of 12 that asks for nothing: all zero but `num_buffers`, which is 1.
const ONE_BUFFER: u64 = 1 << 48;
/// Where a row has no frame.
static NO_BYTES: FirstBytes = FirstBytes([0; HEAD_BYTES]);
/// Chains gathered after one that was not plain.
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

impl Tally {
    #[cold]
    fn lose(&mut self, frame: &Frame<'_, '_>, reason: DropReason) {
        frame.lose(reason);
        match reason {
            DropReason::ReceiverTooSmall => self.small += 1,
            DropReason::Oversize => self.long += 1,
            _ => self.full += 1,
        }
    }
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
    /// The bytes that were written to each chain of a run.
    lens: Box<[u32]>,
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
            lens: vec![0; RUN].into(),
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

    /// From now on notes where the ring is, if it does not tell itself. It goes on where a predecessor was.
    pub fn set_noted(&mut self, guest: &GuestMemory, noted: Option<Taken>) {
        if let Some(noted) = &noted {
            if let Some(found) = noted.noted() {
                self.ring.take_over(&mut guest.space(), found);
            }
            noted.begin(self.ring.base());
        }
        self.ring.set_noted(noted);
    }

    /// Gives frames to the driver, in order, with one publication.
    ///
    /// # Errors
    /// The ring is not as it must be. What was given stays given.
    #[inline]
    pub fn deliver<'b, 'm: 'b>(
        &mut self,
        guest: &GuestMemory,
        mut frames: impl Iterator<Item = Frame<'b, 'm>> + Clone,
        tally: &mut Tally,
    ) -> Result<(), RingFault> {
        let mut heads = std::mem::take(&mut self.heads);
        let result = self.give(guest.space(), &mut heads, &mut frames, tally);
        self.heads = heads;
        for frame in frames {
            let reason = if self.is_too_long(&frame) { DropReason::Oversize } else { DropReason::ReceiverFull };
            tally.lose(&frame, reason);
        }
        self.ring.publish();
        if let Some(log) = &self.log {
            log.mark_all(self.ring.written())?;
        }
        result
    }

    /// Gives frames to the driver, as long as there are chains; what is left over is left there.
    #[inline(always)]
    fn give<'b, 'm: 'b>(
        &mut self,
        mut space: Space<'_>,
        heads: &mut [Head],
        frames: &mut (impl Iterator<Item = Frame<'b, 'm>> + Clone),
        tally: &mut Tally,
    ) -> Result<(), RingFault> {
        self.ring.refresh()?;
        self.steps = LONGEST_CHAIN.into();
        let mut want = RUN;
        while frames.size_hint().1 != Some(0) {
            let most = frames.size_hint().1.unwrap_or(RUN);
            let count = self.ring.gather(self.ring.first(), WRITE, &mut heads[..want.min(most).min(RUN)])?;
            if count == 0 {
                return Ok(());
            }
            let given = match self.header {
                _ if self.log.is_some() => 0,
                12 if count <= FEW => self.give_plain::<12, FEW>(&space, &heads[..count], frames, tally),
                12 => self.give_plain::<12, ROW>(&space, &heads[..count], frames, tally),
                _ => self.give_plain::<10, ROW>(&space, &heads[..count], frames, tally),
            };
            want = RUN;
            let Some(&head) = heads[..count].get(given) else { continue };
            // Where a chain is not as it must be, its frame is left over, too.
            let Some(frame) = frames.clone().next() else { return Ok(()) };
            if self.is_too_long(&frame) {
                tally.lose(&frame, DropReason::Oversize);
            } else {
                // It may take several chains, or none.
                match self.give_pieces(&mut space, self.ring.first(), head, frame)? {
                    None => {
                        tally.frames += 1;
                        tally.bytes += frame.len() as u64;
                    }
                    Some(reason) => tally.lose(&frame, reason),
                }
            }
            frames.next();
            // What was gathered is gathered again, so few at a time.
            want = FIRST_RUN;
        }
        Ok(())
    }

    /// Gives frames to chains of one descriptor that hold them, in the region that was used last, up to the first that
    /// does not, in rows of `ROW`. Returns how many.
    #[inline(always)]
    fn give_plain<'b, 'm: 'b, const HEADER: usize, const ROW: usize>(
        &mut self,
        space: &Space<'_>,
        heads: &[Head],
        frames: &mut (impl Iterator<Item = Frame<'b, 'm>> + Clone),
        tally: &mut Tally,
    ) -> usize {
        let longest = self.longest;
        let heads = plain(heads, WRITE);
        // Of each frame in a row its buffer, cut to the bytes that are written, and its own first bytes.
        let mut buffers = [View::private(&mut []); ROW];
        let mut firsts = [&NO_BYTES; ROW];
        let mut given = 0;
        let waited = frames.clone().next().is_some_and(|frame| frame.has_waited());
        loop {
            let (row, mut found, mut all_short, mut odd_headers) = (frames.clone(), 0, true, 0);
            let places = buffers.iter_mut().zip(&mut firsts).zip(&mut self.lens[given..]);
            for ((head, ((place, first), written)), frame) in heads[given..].iter().zip(places).zip(frames.clone()) {
                let len = HEADER + frame.len();
                let Some(buffer) = space.near(head.first.address, head.first.len()).and_then(|all| all.sub(0, len))
                else {
                    break;
                };
                if frame.len() > longest {
                    break;
                }
                (*place, *first, *written) = (buffer, frame.head(), len as u32);
                odd_headers |= unlike_plain::<HEADER>(buffer);
                all_short &= frame.is_short();
                found += 1;
            }
            if found > 0 {
                frames.nth(found - 1);
            }
            let buffers = &buffers[..found];
            if all_short {
                copy::write_short_row::<HEADER>(buffers, &firsts[..found]);
                if odd_headers != 0 {
                    buffers.iter().for_each(|buffer| write_header::<HEADER>(*buffer, None));
                }
            } else if waited {
                buffers
                    .iter()
                    .zip(row.clone())
                    .for_each(|(buffer, frame)| write_header::<HEADER>(*buffer, frame.offload()));
                copy::write_waited_row::<HEADER>(buffers, row);
            } else {
                buffers.iter().for_each(|buffer| prefetch(*buffer, prefetch_write));
                for (buffer, frame) in buffers.iter().zip(row.clone()) {
                    buffer.behind(HEADER).inspect(|room| copy::touch(*room, &frame));
                }
                for (buffer, frame) in buffers.iter().zip(row) {
                    write_header::<HEADER>(*buffer, frame.offload());
                    buffer.behind(HEADER).inspect(|room| copy::write(*room, &frame));
                }
            }
            given += found;
            if found < ROW {
                break;
            }
        }
        let (heads, lens) = (&heads[..given], &self.lens[..given]);
        tally.frames += given as u64;
        tally.bytes += lens.iter().map(|&len| u64::from(len) - HEADER as u64).sum::<u64>();
        self.ring.give_back_written(heads, lens);
        given
    }

    /// Longer than the MTU allows; one that is to be segmented is not.
    fn is_too_long(&self, frame: &Frame<'_, '_>) -> bool {
        frame.len() > self.longest && frame.offload().is_none_or(|offload| offload.gso_size == 0)
    }

    /// Gives a frame to chains of any framing, to several of them if need be and allowed.
    #[cold]
    #[inline(never)]
    fn give_pieces(
        &mut self,
        space: &mut Space<'_>,
        mut at: R::At,
        mut head: Head,
        frame: Frame<'_, '_>,
    ) -> Result<Option<DropReason>, RingFault> {
        self.steps += STEPS_PER_FRAME + frame.len() as i64 / 16;
        if self.steps <= 0 {
            return Ok(Some(DropReason::ReceiverFull));
        }
        // Descriptors of all its chains; and of pieces, where a buffer lies in several regions.
        let (mut seen, mut pieces) = (0, 0i64);
        self.spans.clear();
        let mut source = Source::new(&frame);
        let mut header = HeaderPlace { pieces: [None; MAX_HEADER], count: 0, left: self.header };
        loop {
            let mut written = 0;
            let before = seen;
            let log = self.log.as_deref();
            let chain = walk(&self.ring, space, at, head, |space, descriptor| {
                seen += 1;
                let (address, len, flags) = (descriptor.address, descriptor.len(), descriptor.flags());
                if flags & WRITE == 0 {
                    return Err(RingFault::ReadableInReceive);
                }
                let used = match space.view(address, len) {
                    Some(buffer) => header.fill(address, buffer, &mut source),
                    None => {
                        let parts = space.pieces(address, len).ok_or(RingFault::BadAddress { address, len })?;
                        let mut used: usize = 0;
                        for piece in parts {
                            if header.left == 0 && source.is_empty() {
                                break;
                            }
                            pieces += 1;
                            used += header.fill(address + used as u64, piece, &mut source);
                        }
                        used
                    }
                };
                written += used as u32;
                log.map_or(Ok(()), |log| log.mark_all([(address, used as u64)]))
            })?;
            self.spans.push((chain, written));
            self.steps -= i64::from(seen - before) + std::mem::take(&mut pieces);
            if header.left == 0 && source.is_empty() {
                break;
            }
            let end = seen >= LONGEST_CHAIN || self.spans.len() == usize::from(self.ring.size());
            if !self.mergeable || header.left > 0 || end {
                return Ok(Some(DropReason::ReceiverTooSmall));
            }
            at = self.ring.after(at, chain.slots);
            match self.ring.head(at)? {
                Some(next) => head = next,
                // What was written into buffers that are not given back, nobody sees.
                None => return Ok(Some(DropReason::ReceiverFull)),
            }
        }
        header.write(frame.offload(), self.spans.len() as u16);
        if let Some(log) = &self.log {
            // The pages were noted when the frame was copied; the header is younger.
            log.mark_all(header.places())?;
        }
        for &(chain, len) in &self.spans {
            self.ring.give_back(chain, len);
        }
        Ok(None)
    }
}

/// What of a buffer's first bytes is not as the header of a frame that asks for nothing; 0: such a header is there.
#[inline(always)]
fn unlike_plain<const HEADER: usize>(buffer: View<'_>) -> u64 {
    // Two words that overlap.
    let (at, tail) = if HEADER == MAX_HEADER { (HEADER - 8, ONE_BUFFER) } else { (HEADER - 8, 0) };
    let first = buffer.first_word().unwrap_or(u64::MAX);
    let last = buffer.sub(at, 8).and_then(|last| last.first_word()).unwrap_or(u64::MAX);
    first | last ^ tail
}

/// Writes the header of a frame in one buffer, unless it is there already: its line then need not be fetched for writing
/// by the driver, who may look at it only.
#[inline(always)]
fn write_header<const HEADER: usize>(buffer: View<'_>, offload: Option<&Offload>) {
    if offload.is_some() || unlike_plain::<HEADER>(buffer) != 0 {
        put_header(buffer, HEADER, offload);
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
    /// Takes its part of a buffer, and what of the frame is left gets the rest. Returns how many bytes of the buffer are used.
    fn fill(&mut self, address: u64, buffer: View<'m>, source: &mut Source<'_, '_>) -> usize {
        let used = self.take(address, buffer);
        used + buffer.behind(used).map_or(0, |room| source.fill(room))
    }

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
