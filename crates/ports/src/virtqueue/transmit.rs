//! Frames from a driver: a transmit queue (virtio 1.3, 5.1.6.2).

mod discard;

use std::sync::Arc;

use ringway_memory::{View, prefetch_read};
use ringway_switch::{Accepts, Batch, DropReason, Offload};

use super::fault::RingFault;
use super::ring::{Chain, Descriptor, Head, RUN, Ring, WRITE, plain, walk};
use crate::copy::{FEW, LINE, ROW};
use crate::gather::{Bounce, Gather, MAX_FRAME, Pieces};
use crate::guest::{DirtyLog, GuestMemory, Space};
use crate::vhost_user::Taken;

/// A batch ends after so many descriptors of chains and pieces of their buffers: the ring may name the same long chain again and
/// again, and a buffer may lie in as many regions as the guest has. What is left is met by the next visit: the ring is pending.
const MOST_STEPS: u32 = 4096;
/// A batch takes no more than half of a ring, unless that is less than this: while it is under way the driver fills the other half.
const FEWEST: usize = 64;
/// The header without `num_buffers` is at most this long.
const MAX_HEADER: usize = 12;
/// What in a header's first word asks for something: VIRTIO_NET_HDR_F_NEEDS_CSUM and the type of segmentation.
const ASKS: u64 = 0xff01;

/// One transmit queue.
#[derive(Debug)]
pub struct Transmit<R> {
    pub(crate) ring: R,
    /// Bytes of the header before each frame.
    header: usize,
    /// Chains taken by the last collect, and how many it may take.
    taken: Vec<Chain>,
    most: usize,
    /// How many the last collect took that took any: about as many will be there next time.
    expected: usize,
    /// Where the heads of a run are gathered.
    heads: Box<[Head]>,
    /// Frames are taken and thrown away: the queue is disabled (vhost-user, "Ring states").
    pub(crate) discard: bool,
    /// Longest frame that the negotiated MTU allows.
    longest: usize,
    /// What the driver may leave to us.
    allowed: Accepts,
    log: Option<Arc<DirtyLog>>,
    /// Where to note how far frames were taken.
    noted: Option<Taken>,
}

impl<R: Ring> Transmit<R> {
    /// A queue whose frames have `header` (10 or 12) bytes before them, leave no more than `allowed` to us, and are no
    /// longer than `longest`, segmented ones apart.
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

    /// From now on notes how far frames were taken. What a predecessor took and did not give back is given back unsent:
    /// true when there was any. A note that does not agree with the ring means nothing.
    pub fn set_noted(&mut self, guest: &GuestMemory, noted: Option<Taken>) -> bool {
        let found = noted.as_ref().and_then(Taken::noted);
        let chains = found.map_or_else(Vec::new, |found| self.ring.take_over(&mut guest.space(), found));
        let any = !chains.is_empty();
        let before = std::mem::replace(&mut self.taken, chains);
        // A page that was lost is met again by the next collect.
        let _ = self.release(guest);
        self.taken = before;
        if let Some(noted) = &noted {
            noted.begin(self.ring.base());
        }
        self.noted = noted;
        any
    }

    /// Notes that nothing is in flight any more, and where a successor goes on if the ring does not say it.
    pub fn note_end(&self) {
        match &self.noted {
            Some(noted) if R::SAYS_WHERE => noted.clear(),
            Some(noted) => noted.note(self.ring.base(), self.ring.base()),
            None => {}
        }
    }

    /// Takes frames as long as the batch has room.
    ///
    /// # Errors
    /// The ring is not as it must be. What is in the batch may be delivered.
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
        let mut steps = 0;
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
                    match self.take_chain(*space, *at, head, bounce, batch, &mut steps)? {
                        Some(chain) => chain,
                        None => return Ok(()),
                    }
                };
                *at = self.ring.after(*at, chain.slots);
                self.taken.push(chain);
                place += 1;
                if steps >= MOST_STEPS {
                    return Ok(());
                }
            }
            if !self.may_be_more(*at, heads, want) {
                return Ok(());
            }
        }
    }

    /// Whether there may be chains at `at`, behind those that were gathered when `want` were asked for: fewer are all there
    /// are, unless a chain of another kind or the ring's end came between.
    #[inline(always)]
    fn may_be_more(&self, at: R::At, heads: &[Head], want: usize) -> bool {
        let is_early = self.ring.is_start(at) || heads.last().is_some_and(|last| last.first.unlike(0) != 0);
        !heads.is_empty() && (heads.len() == want || is_early)
    }

    /// Takes frames as long as each is in one descriptor of the region that was used last, and asks for nothing. Returns
    /// how many. They are looked at in rows of `ROW`.
    #[inline(always)]
    fn take_plain<'m, const HEADER: usize, const ROW: usize>(
        &self,
        space: &Space<'m>,
        heads: &[Head],
        batch: &mut Batch<'m>,
    ) -> usize {
        let longest = self.longest.saturating_add(HEADER);
        // Of each frame in a row first all that is in its descriptor, then what is behind the header.
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
                // Header and frame have two lines or more.
                prefetch_read(view.as_ptr());
                prefetch_read(view.as_ptr().wrapping_add(LINE));
                *whole = view;
                found += 1;
            }
            let mut plain = 0;
            for whole in &mut row[..found] {
                // Neither a checksum nor segmentation is asked for.
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

    /// A frame in one descriptor and one region, header and all; false: it is in no region, or in several.
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

    /// Counts a frame that is no frame.
    fn refuse(&self, batch: &mut Batch<'_>, reason: DropReason) {
        if !self.discard {
            batch.refuse(reason);
        }
    }

    /// A frame in one descriptor that is more than plain.
    #[cold]
    #[inline(never)]
    fn push_whole<'m>(&self, whole: View<'m>, word: u64, frame: View<'m>, batch: &mut Batch<'m>) {
        let mut header = [0; 10];
        let _ = whole.read(&mut header);
        // The word that was judged is the word that counts.
        header[..8].copy_from_slice(&word.to_le_bytes());
        self.push(batch, &header, frame.len(), |batch, offload| match offload {
            None => batch.push(frame, frame.len()),
            Some(offload) => batch.push_offloaded(frame, frame.len(), offload),
        });
    }

    /// Looks at a header before its frame is pushed.
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

    /// A frame in a chain of any framing; `None` when it has to wait for the next batch. Adds its descriptors to `steps`.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn take_chain<'m>(
        &self,
        mut space: Space<'m>,
        at: R::At,
        head: Head,
        bounce: &'m Bounce,
        batch: &mut Batch<'m>,
        steps: &mut u32,
    ) -> Result<Option<Chain>, RingFault> {
        let mut gather = Headed::new(self.header, bounce);
        let chain = walk(&self.ring, &mut space, at, head, |space, descriptor| {
            *steps += 1;
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
                *steps += 1;
                if !gather.add(view) {
                    break;
                }
            }
            Ok(())
        })?;
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

    /// Of the frames of the last collect, of which none was refused, takes only the first `frames`; returns how many there
    /// were of these.
    pub fn keep(&mut self, frames: usize) -> usize {
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

    /// Gives the chains of the last collect back.
    ///
    /// # Errors
    /// A page of the guest's memory was lost, or one that was written has no bit in the log.
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

/// A chain's header and the pieces of its frame.
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

    /// Adds the next piece; false: no more of them are wanted.
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
