//! A transmit queue: takes the frames of a driver.

use std::sync::Arc;

use ringway_memory::{View, prefetch_read};
use ringway_port::copy::{FEW, LINE, ROW};
use ringway_port::gather::{Bounce, Gather, MAX_FRAME, Pieces};
use ringway_port::guest::{DirtyLog, GuestMemory, Space};
use ringway_switch::{Accepts, Batch, DropReason, Offload};

use crate::virtqueue::fault::RingFault;
use crate::virtqueue::inflight::InflightNote;
use crate::virtqueue::ring::{Chain, Descriptor, Head, RUN, Ring, WRITE, plain, walk};

/// A collect ends after this many steps, which are descriptors of chains and pieces of their buffers. The ring may name
/// the same long chain again and again, and a buffer may span as many regions as the guest has. The next visit takes
/// the rest: the ring is still pending.
pub(super) const MOST_STEPS: u32 = 4096;
/// A collect takes at most half of a ring, but at least this many chains: while they are processed, the driver can fill
/// the other half.
const FEWEST: usize = 64;
/// Most bytes of a virtio-net header.
const MAX_HEADER: usize = 12;
/// The fields in the first eight bytes of a header that request an offload: VIRTIO_NET_HDR_F_NEEDS_CSUM and the GSO
/// type.
pub(super) const ASKS: u64 = 0xff01;

/// What a collect needs for chains that are not plain.
struct LongPath<'m> {
    bounce: &'m Bounce,
    /// Descriptors and pieces so far.
    steps: u32,
}

/// The device's side of one transmit queue.
#[derive(Debug)]
pub struct Transmit<R> {
    pub(crate) ring: R,
    /// Length in bytes of the header before each frame.
    pub(super) header: usize,
    /// The chains that the last collect took, and the most that a collect may take.
    pub(super) taken: Vec<Chain>,
    most: usize,
    /// Chains taken by the last collect that took any: an estimate for the next one.
    expected: usize,
    /// Buffer for gathered heads.
    pub(super) heads: Box<[Head]>,
    /// True if frames are taken and dropped: the queue is disabled (vhost-user, "Ring states").
    pub(crate) discard: bool,
    /// Longest frame in bytes that the negotiated MTU allows.
    pub(super) longest: usize,
    /// The offloads that the driver may request.
    allowed: Accepts,
    log: Option<Arc<DirtyLog>>,
    /// Where to note which chains are in flight.
    pub(super) noted: Option<InflightNote>,
}

impl<R: Ring> Transmit<R> {
    /// A queue whose frames have a header of `header` (10 or 12) bytes, request only the offloads in `allowed`, and
    /// have at most `longest` bytes. Only segmented frames may be longer.
    #[must_use]
    pub fn new(ring: R, header: usize, longest: usize, allowed: Accepts) -> Transmit<R> {
        let taken = Vec::with_capacity(ringway_switch::MAX_BATCH);
        let most = usize::from(ring.size() / 2).clamp(FEWEST, ringway_switch::MAX_BATCH);
        Transmit {
            ring,
            header,
            taken,
            most,
            expected: 0,
            heads: vec![Head::default(); RUN].into(),
            discard: false,
            longest: longest.min(MAX_FRAME),
            allowed,
            log: None,
            noted: None,
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

    /// Notes the chains in flight in `noted` from now on. Chains that a predecessor took and did not mark used are
    /// marked used, without sending their frames. Returns true if there were such chains. A note that does not agree
    /// with the ring is ignored.
    pub fn set_noted(&mut self, guest: &GuestMemory, noted: Option<InflightNote>) -> bool {
        let found = noted.as_ref().and_then(InflightNote::noted);
        let chains = found.map_or_else(Vec::new, |found| self.ring.take_over(&mut guest.space(), found));
        let any = !chains.is_empty();
        let before = std::mem::replace(&mut self.taken, chains);
        // The next collect reports a lost page.
        let _ = self.release(guest);
        self.taken = before;
        if let Some(noted) = &noted {
            noted.begin(self.ring.base());
        }
        self.noted = noted;
        any
    }

    /// Notes that no chain is in flight, and the position at which a successor continues if the ring itself does not
    /// hold it.
    pub fn note_end(&self) {
        match &self.noted {
            Some(noted) if R::SAYS_WHERE => noted.clear(),
            Some(noted) => noted.note(self.ring.base(), self.ring.base()),
            None => {}
        }
    }

    /// Takes frames while the batch has room.
    ///
    /// # Errors
    /// The ring is malformed. Frames that are in the batch may be delivered.
    #[inline]
    pub fn collect<'m>(
        &mut self,
        guest: &'m GuestMemory,
        bounce: &'m Bounce,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingFault> {
        let mut at = self.ring.first();
        let result = self.take(guest, bounce, batch, &mut at);
        if let Some(noted) = &self.noted {
            noted.note(self.ring.base(), self.ring.base_of(at));
        }
        result
    }

    #[inline(always)]
    fn take<'m>(
        &mut self,
        guest: &'m GuestMemory,
        bounce: &'m Bounce,
        batch: &mut Batch<'m>,
        at: &mut R::At,
    ) -> Result<(), RingFault> {
        self.ring.refresh()?;
        let mut space = guest.space();
        let mut heads = std::mem::take(&mut self.heads);
        let result = self.take_runs(&mut space, &mut heads, bounce, batch, at);
        self.heads = heads;
        result
    }

    #[inline(always)]
    fn take_runs<'m>(
        &mut self,
        space: &mut Space<'m>,
        heads: &mut [Head],
        bounce: &'m Bounce,
        batch: &mut Batch<'m>,
        at: &mut R::At,
    ) -> Result<(), RingFault> {
        let mut long = LongPath { bounce, steps: 0 };
        self.ring.approach(*at, self.most.min(self.expected));
        loop {
            let room = if self.discard { RUN } else { batch.room() };
            let want = RUN.min(room).min(self.most - self.taken.len());
            if want == 0 && room > 0 && !self.discard {
                batch.note_more();
            }
            let count = self.ring.gather(*at, 0, &mut heads[..want])?;
            let heads = &heads[..count];
            let mut place = 0;
            loop {
                let plain = match self.header {
                    _ if self.discard => 0,
                    12 if heads.len() <= FEW => self.take_plain::<12, FEW>(space, &heads[place..], batch),
                    12 => self.take_plain::<12, ROW>(space, &heads[place..], batch),
                    _ => self.take_plain::<10, ROW>(space, &heads[place..], batch),
                };
                self.taken.extend(heads[place..][..plain].iter().map(|head| self.ring.alone(head)));
                *at = self.ring.past(*at, plain);
                place += plain;
                let Some(&head) = heads.get(place) else { break };
                if !self.discard && batch.room() == 0 {
                    return Ok(());
                }
                let chain = if head.first.unlike(0) == 0 && self.take_one(space, head.first, batch) {
                    self.ring.alone(&head)
                } else {
                    match self.take_chain(*space, *at, head, &mut long, batch)? {
                        Some(chain) => chain,
                        None => return Ok(()),
                    }
                };
                *at = self.ring.after(*at, chain.slots);
                self.taken.push(chain);
                place += 1;
                if long.steps >= MOST_STEPS {
                    return Ok(());
                }
            }
            if !self.may_be_more(*at, heads, want) {
                return Ok(());
            }
        }
    }

    /// Returns true if there may be further chains at `at`, after the gathered `heads` out of `want` requested. Fewer
    /// heads than requested mean that no more are available, unless the gathering stopped at a chain of another kind or
    /// at the ring's end.
    #[inline(always)]
    pub(super) fn may_be_more(&self, at: R::At, heads: &[Head], want: usize) -> bool {
        let is_early = self.ring.is_start(at) || heads.last().is_some_and(|last| last.first.unlike(0) != 0);
        !heads.is_empty() && (heads.len() == want || is_early)
    }

    /// Takes frames until the first that is not plain. A plain frame is in one descriptor, in the region of the last
    /// lookup, and requests no offload. Returns the number of frames taken. Handles them in rows of `ROW`.
    #[inline(always)]
    fn take_plain<'m, const HEADER: usize, const ROW: usize>(
        &self,
        space: &Space<'m>,
        heads: &[Head],
        batch: &mut Batch<'m>,
    ) -> usize {
        let longest = self.longest.saturating_add(HEADER);
        // For each frame of the row: first the whole buffer, then the bytes after the header.
        let mut row = [View::private(&mut []); ROW];
        let heads = plain(heads, 0);
        let mut taken = 0;
        loop {
            let mut found = 0;
            for (head, whole) in heads[taken..].iter().zip(&mut row) {
                let Some(view) = space.near(head.first.address, head.first.len()) else { break };
                if view.len() > longest {
                    break;
                }
                // Header and frame together take at least two cache lines.
                prefetch_read(view.as_ptr());
                prefetch_read(view.as_ptr().wrapping_add(LINE));
                *whole = view;
                found += 1;
            }
            let mut plain = 0;
            for whole in &mut row[..found] {
                // The header requests neither a checksum nor segmentation.
                match whole.split_header::<HEADER>() {
                    Some((word, frame)) if word & ASKS == 0 => *whole = frame,
                    _ => break,
                }
                plain += 1;
            }
            let filled = batch.fill(&row[..plain]);
            taken += filled;
            if filled < ROW {
                return taken;
            }
        }
    }

    /// Takes a frame whose header and bytes are in one descriptor and one region. Returns false if the buffer is in no
    /// region, or in several.
    #[cold]
    #[inline(never)]
    fn take_one<'m>(&self, space: &mut Space<'m>, descriptor: Descriptor, batch: &mut Batch<'m>) -> bool {
        let Some(whole) = space.view(descriptor.address, descriptor.len()) else { return false };
        let frame = whole.len().checked_sub(self.header).and_then(|len| whole.sub(self.header, len));
        let (Some(word), Some(frame)) = (whole.first_word(), frame) else {
            self.refuse(batch, DropReason::Runt);
            return true;
        };
        if word & ASKS == 0 && frame.len() <= self.longest && !self.discard {
            batch.push(frame, frame.len());
        } else {
            self.push_whole(whole, word, frame, batch);
        }
        true
    }

    /// Counts a malformed frame.
    fn refuse(&self, batch: &mut Batch<'_>, reason: DropReason) {
        if !self.discard {
            batch.refuse(reason);
        }
    }

    /// Takes a frame in one descriptor that is not plain: it requests an offload, is too long, or the queue discards
    /// frames.
    #[cold]
    #[inline(never)]
    fn push_whole<'m>(&self, whole: View<'m>, word: u64, frame: View<'m>, batch: &mut Batch<'m>) {
        let mut header = [0; 10];
        let _ = whole.read(&mut header);
        // The driver may have changed the header since `word` was read: use the word that was checked.
        header[..8].copy_from_slice(&word.to_le_bytes());
        self.push(batch, &header, frame.len(), |batch, offload| match offload {
            None => batch.push(frame, frame.len()),
            Some(offload) => batch.push_offloaded(frame, frame.len(), offload),
        });
    }

    /// Decodes and checks a header, then pushes its frame with `push` or counts the reason for the drop.
    fn push<'m>(
        &self,
        batch: &mut Batch<'m>,
        header: &[u8; 10],
        len: usize,
        push: impl FnOnce(&mut Batch<'m>, Option<Offload>),
    ) {
        if self.discard {
            return;
        }
        match Offload::decode(header) {
            Err(_) => batch.refuse(DropReason::BadOffload),
            Ok(Some(offload)) if !self.allowed.covers(&offload) => batch.refuse(DropReason::BadOffload),
            Ok(offload) => {
                let segmented = offload.is_some_and(|offload| offload.gso_size > 0);
                if len > if segmented { MAX_FRAME } else { self.longest } {
                    batch.refuse(DropReason::Oversize);
                } else {
                    push(batch, offload);
                }
            }
        }
    }

    /// Takes a frame in any chain. Returns `None` when the frame has to wait for the next batch. Adds the chain's
    /// descriptors and pieces to the steps.
    #[cold]
    #[inline(never)]
    fn take_chain<'m>(
        &self,
        mut space: Space<'m>,
        at: R::At,
        head: Head,
        long: &mut LongPath<'m>,
        batch: &mut Batch<'m>,
    ) -> Result<Option<Chain>, RingFault> {
        let mut gather = Headed::new(self.header, long.bounce);
        let before = long.steps;
        let chain = walk(&self.ring, &mut space, at, head, |space, descriptor| {
            long.steps += 1;
            let (address, len, flags) = (descriptor.address, descriptor.len(), descriptor.flags());
            if flags & WRITE != 0 {
                return Err(RingFault::WritableInTransmit);
            }
            if let Some(view) = space.view(address, len) {
                gather.add(view);
                return Ok(());
            }
            let pieces = space.pieces(address, len).ok_or(RingFault::BadAddress { address, len })?;
            for view in pieces {
                long.steps += 1;
                if !gather.add(view) {
                    break;
                }
            }
            Ok(())
        })?;
        batch.note_steps(u64::from(long.steps - before));
        if gather.header_len < self.header {
            self.refuse(batch, DropReason::Runt);
            return Ok(Some(chain));
        }
        let mut header = [0; 10];
        header.copy_from_slice(&gather.header[..10]);
        let len = gather.frame.len();
        match gather.frame.pieces() {
            Pieces::Wait => return Ok(None),
            Pieces::TooLong => self.refuse(batch, DropReason::Oversize),
            Pieces::Are(pieces) => self.push(batch, &header, len, |batch, offload| {
                let pieces = pieces.iter().copied();
                match offload {
                    None => batch.push_pieces(pieces),
                    Some(offload) => batch.push_pieces_offloaded(pieces, offload),
                }
            }),
        }
        Ok(Some(chain))
    }

    /// Undoes the last collect, from which no frame was refused, except for its first `frames` frames. Returns how many
    /// frames remain taken.
    pub fn rewind(&mut self, frames: usize) -> usize {
        if self.discard {
            return 0;
        }
        self.taken.truncate(frames);
        if let Some(noted) = &self.noted {
            let until = self.taken.iter().fold(self.ring.first(), |at, chain| self.ring.after(at, chain.slots));
            noted.note(self.ring.base(), self.ring.base_of(until));
        }
        self.taken.len()
    }

    /// Marks the chains of the last collect used.
    ///
    /// # Errors
    /// A page of guest memory was lost, or a written page has no bit in the dirty log.
    #[inline]
    pub fn release(&mut self, guest: &GuestMemory) -> Result<(), RingFault> {
        if self.taken.is_empty() {
            return Ok(());
        }
        self.expected = self.taken.len();
        self.ring.give_back_read(&self.taken);
        self.ring.publish();
        self.taken.clear();
        if let Some(log) = &self.log {
            log.mark_all(self.ring.written())?;
        }
        if guest.is_lost() { Err(RingFault::MemoryLost) } else { Ok(()) }
    }
}

/// The header of a chain, and the pieces of its frame.
struct Headed<'m> {
    header: [u8; MAX_HEADER],
    header_len: usize,
    wanted: usize,
    frame: Gather<'m>,
}

impl<'m> Headed<'m> {
    fn new(wanted: usize, bounce: &'m Bounce) -> Headed<'m> {
        let wanted = wanted.min(MAX_HEADER);
        Headed { header: [0; MAX_HEADER], header_len: 0, wanted, frame: Gather::new(bounce) }
    }

    /// Adds the next piece. Returns false when the frame is too long: the caller need not add the others.
    fn add(&mut self, mut view: View<'m>) -> bool {
        let part = view.len().min(self.wanted - self.header_len);
        if part > 0 {
            let _ = view.read(&mut self.header[self.header_len..self.header_len + part]);
            self.header_len += part;
            match view.sub(part, view.len() - part) {
                Some(rest) => view = rest,
                None => return true,
            }
        }
        self.frame.add(view)
    }
}
