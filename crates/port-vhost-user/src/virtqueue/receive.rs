//! Frames to a driver: a receive queue (virtio 1.3, 5.1.6.3 and 5.1.6.4).

use std::sync::Arc;

use ringway_memory::{HEAD_BYTES, Head as FirstBytes, View, prefetch_write};
use ringway_port::copy::{self, FEW, ROW, Source, prefetch};
use ringway_port::guest::{DirtyLog, GuestMemory, Space};
use ringway_switch::{DropReason, Frame, Gso, Offload};

use super::fault::RingFault;
use super::inflight::InflightNote;
use super::ring::{Chain, Head, LONGEST_CHAIN, RUN, Ring, WRITE, plain, walk};

/// Work that one frame may cause, in descriptors of chains and pieces of their buffers: this many, plus one for every
/// 16 bytes. When a delivery has used up its steps, the remaining frames that need the slow path are dropped: otherwise
/// buffers that are too small for any frame would be searched again for each frame.
const STEPS_PER_FRAME: i64 = 32;
/// Longest virtio-net header in bytes. It is also the limit for the pieces that the header may be split over: each
/// piece holds at least one byte of it.
const MAX_HEADER: usize = 12;
/// The last eight bytes of a 12-byte header without offload: all zero except `num_buffers`, which is 1.
const ONE_BUFFER: u64 = 1 << 48;
/// Fills the unused places of a row.
static NO_BYTES: FirstBytes = FirstBytes([0; HEAD_BYTES]);
/// Number of heads gathered after a chain that was not plain.
const FIRST_RUN: usize = 4;

/// Counts the results of one delivery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Frames delivered to the driver.
    pub frames: u64,
    /// Bytes of the delivered frames.
    pub bytes: u64,
    /// Frames dropped because there was no buffer.
    pub full: u64,
    /// Frames dropped because they did not fit the buffer.
    pub small: u64,
    /// Frames dropped because they exceed the MTU.
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

/// The device's side of one receive queue.
#[derive(Debug)]
pub struct Receive<R> {
    pub(crate) ring: R,
    /// Length in bytes of the header before each frame.
    header: usize,
    /// True if a frame may span several buffers (VIRTIO_NET_F_MRG_RXBUF).
    mergeable: bool,
    /// Longest frame in bytes that the MTU allows. Segmented frames may be longer (virtio 1.3, 5.1.4.1).
    pub(crate) longest: usize,
    /// True if the queue is enabled, so that frames may be delivered.
    pub(crate) enabled: bool,
    /// The chains of a frame that spans several buffers, with the bytes written to each.
    spans: Vec<(Chain, u32)>,
    /// Bytes that the first chain of the last frame in several chains took.
    pub(crate) buffer: usize,
    /// Buffer for gathered heads.
    heads: Box<[Head]>,
    /// The bytes written to each gathered chain.
    lens: Box<[u32]>,
    /// Steps that this delivery may still take: see [`STEPS_PER_FRAME`].
    steps: i64,
    log: Option<Arc<DirtyLog>>,
}

impl<R: Ring> Receive<R> {
    /// A queue that puts a header of `header` (10 or 12) bytes before each frame.
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
            buffer: usize::MAX,
            heads: vec![Head::default(); RUN].into(),
            lens: vec![0; RUN].into(),
            steps: 0,
            log: None,
        }
    }

    /// Marks written pages in this dirty log from now on.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Marks the parts of the ring that the device writes in the dirty log.
    pub fn note_ring(&self) {
        if let Some(log) = &self.log {
            // A log that is too small is reported with the next chain.
            let _ = log.mark_all(self.ring.written());
        }
    }

    /// Takes over from a predecessor if `noted` holds its note, and notes the position of the ring in `noted` from now
    /// on, if the ring itself does not hold it.
    pub fn set_noted(&mut self, guest: &GuestMemory, noted: Option<InflightNote>) {
        if let Some(noted) = &noted {
            if let Some(found) = noted.noted() {
                self.ring.take_over(&mut guest.space(), found);
            }
            noted.begin(self.ring.base());
        }
        self.ring.set_noted(noted);
    }

    /// Delivers frames to the driver, in order, and publishes them together.
    ///
    /// # Errors
    /// The ring is malformed. The frames delivered before the fault stay delivered.
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

    /// Delivers frames while chains are available. Leaves the remaining frames in `frames`.
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
            // If the chain is malformed, its frame remains in `frames`, too.
            let Some(frame) = frames.clone().next() else { return Ok(()) };
            if self.is_too_long(&frame) {
                tally.lose(&frame, DropReason::Oversize);
            } else {
                // The frame may take several chains, or none.
                match self.give_pieces(&mut space, self.ring.first(), head, frame)? {
                    None => {
                        tally.frames += 1;
                        tally.bytes += frame.len() as u64;
                    }
                    Some(reason) => tally.lose(&frame, reason),
                }
            }
            frames.next();
            // The heads after this one will be gathered again, so gather only a few.
            want = FIRST_RUN;
        }
        Ok(())
    }

    /// Delivers frames to plain chains, up to the first that is not plain: a plain chain is one descriptor, in the
    /// region of the last lookup, that holds the frame. Returns the number of frames delivered. Handles them in rows of
    /// `ROW`.
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
        // For each frame of the row: its buffer, cut to the bytes that will be written, and the head of the frame.
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

    /// Returns true if a frame, or a segment of it, exceeds the MTU.
    fn is_too_long(&self, frame: &Frame<'_, '_>) -> bool {
        let piece = match frame.offload() {
            Some(&Offload { gso: Gso::Tcp4 | Gso::Tcp6 | Gso::UdpL4, hdr_len, gso_size, .. }) => {
                usize::from(hdr_len) + usize::from(gso_size)
            }
            // Fragments fit.
            Some(Offload { gso: Gso::Udp4Frag, .. }) => 0,
            _ => frame.len(),
        };
        frame.len() > self.longest && piece > self.longest
    }

    /// Delivers one frame to a chain of any kind, or to several chains if the frame needs them and mergeable buffers
    /// were negotiated. Returns the reason if the frame is dropped.
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
        // `seen` counts the descriptors of all chains of the frame, `pieces` the parts of buffers that span several
        // regions.
        let (mut seen, mut pieces) = (0, 0i64);
        self.spans.clear();
        let mut source = Source::new(&frame);
        let mut header = HeaderBuffers { pieces: [None; MAX_HEADER], count: 0, left: self.header };
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
                if let Some(log) = log {
                    log.mark_all([(address, used as u64)])?;
                }
                Ok(())
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
            if let [(_, len)] = self.spans[..] {
                self.buffer = len as usize;
            }
            at = self.ring.after(at, chain.slots);
            match self.ring.head(at)? {
                Some(next) => head = next,
                // The chains are not marked used, so the driver does not see the bytes that were written.
                None => return Ok(Some(DropReason::ReceiverFull)),
            }
        }
        header.write(frame.offload(), self.spans.len() as u16);
        if let Some(log) = &self.log {
            // The pages of the frame were marked when it was copied. The header was written after that.
            log.mark_all(header.places())?;
        }
        for &(chain, len) in &self.spans {
            self.ring.give_back(chain, len);
        }
        Ok(None)
    }
}

/// Compares the beginning of a buffer with the header of a frame without offload. Returns the bits that differ; 0 means
/// that the buffer already holds such a header.
#[inline(always)]
fn unlike_plain<const HEADER: usize>(buffer: View<'_>) -> u64 {
    // Two words that overlap.
    let (at, tail) = if HEADER == MAX_HEADER { (HEADER - 8, ONE_BUFFER) } else { (HEADER - 8, 0) };
    let first = buffer.first_word().unwrap_or(u64::MAX);
    let last = buffer.sub(at, 8).and_then(|last| last.first_word()).unwrap_or(u64::MAX);
    first | last ^ tail
}

/// Writes the header of a frame in one buffer, unless the buffer already holds it: then the cache line stays shared
/// with the driver's core, if the driver only reads it.
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

/// Where the header of a frame is written. The header may be split over as many descriptors as it has bytes.
struct HeaderBuffers<'m> {
    /// Pieces of the header, each with its guest physical address.
    pieces: [Option<(u64, View<'m>)>; MAX_HEADER],
    count: usize,
    left: usize,
}

impl<'m> HeaderBuffers<'m> {
    /// Reserves the buffer's part of the header, and fills the rest of the buffer from `source`. Returns the number of
    /// bytes used.
    fn fill(&mut self, address: u64, buffer: View<'m>, source: &mut Source<'_, '_>) -> usize {
        let used = self.take(address, buffer);
        used + buffer.behind(used).map_or(0, |room| source.fill(room))
    }

    /// Reserves the buffer's part of the header. Returns its length in bytes.
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

    /// Guest physical addresses and lengths in bytes of the header's pieces.
    fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pieces[..self.count].iter().flatten().map(|(address, piece)| (*address, piece.len() as u64))
    }
}
