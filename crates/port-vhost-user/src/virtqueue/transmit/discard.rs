//! Frames that go back unseen, with nothing read but their descriptors.

use ringway_memory::PrefixComparer;
use ringway_port::copy::ROW;
use ringway_port::gather::{MAX_FRAME, SHORTEST_FRAME, begins_with};
use ringway_port::guest::{GuestMemory, Space};
use ringway_switch::Discarded;

use super::queue::{ASKS, MOST_STEPS, Transmit};
use crate::virtqueue::fault::RingFault;
use crate::virtqueue::ring::{Head, RUN, Ring, WRITE, plain, walk};

impl<R: Ring> Transmit<R> {
    /// Takes chains and drops their frames, until `discarded` counts `most` frames or no more are available. The next
    /// release marks the chains used.
    ///
    /// # Errors
    /// The ring is malformed.
    pub fn discard(&mut self, guest: &GuestMemory, most: usize, discarded: &mut Discarded) -> Result<(), RingFault> {
        self.ring.refresh()?;
        let mut heads = std::mem::take(&mut self.heads);
        let mut at = self.ring.first();
        let result = self.skip(guest, &mut heads, &mut at, most, discarded);
        self.heads = heads;
        if let Some(noted) = &self.noted {
            noted.note(self.ring.base(), self.ring.base_of(at));
        }
        result
    }

    /// Drops frames as [`Transmit::discard`] does, up to the first frame that is not plain or does not begin with
    /// `addresses`.
    ///
    /// # Errors
    /// The ring is malformed.
    pub fn discard_like(
        &mut self,
        guest: &GuestMemory,
        addresses: &[u8; 12],
        most: usize,
        discarded: &mut Discarded,
    ) -> Result<(), RingFault> {
        if self.discard {
            return Ok(());
        }
        self.ring.refresh()?;
        let (mut heads, mut space) = (std::mem::take(&mut self.heads), guest.space());
        let mut at = self.ring.first();
        let result = loop {
            let room = most.saturating_sub(discarded.frames as usize);
            let want = RUN.min(room).min(self.taken.capacity() - self.taken.len());
            let count = match self.ring.gather(at, 0, &mut heads[..want]) {
                Ok(count) => count,
                Err(fault) => break Err(fault),
            };
            let like = self.skip_like(&mut space, &heads[..count], addresses, discarded);
            at = self.ring.past(at, like);
            if like < count || !self.may_be_more(at, &heads[..count], want) {
                break Ok(());
            }
        };
        self.heads = heads;
        if let Some(noted) = &self.noted {
            noted.note(self.ring.base(), self.ring.base_of(at));
        }
        result
    }

    /// Takes the first of these heads, as far as they are plain frames that begin with `addresses`. Returns their
    /// number.
    fn skip_like(
        &mut self,
        space: &mut Space<'_>,
        heads: &[Head],
        addresses: &[u8; 12],
        discarded: &mut Discarded,
    ) -> usize {
        let (mut rest, mut together) = (plain(heads, 0), ROW);
        while let Some(&first) = rest.first() {
            let row = &rest[..rest.len().min(together)];
            let mut alike = match self.header {
                12 => self.count_like::<12>(space, row, addresses),
                _ => self.count_like::<10>(space, row, addresses),
            };
            if alike.frames == 0 && together > 1 {
                // Compares one frame at a time, up to the first that differs.
                together = 1;
                continue;
            }
            if alike.frames == 0 {
                let Some(len) = self.like(space, first, addresses) else { break };
                // The following frames may be in the same region as this one.
                (alike, together) = (Discarded { frames: 1, bytes: len as u64 }, ROW);
            }
            let (row, behind) = rest.split_at(alike.frames as usize);
            self.taken.extend(row.iter().map(|head| self.ring.alone(head)));
            discarded.frames += alike.frames;
            discarded.bytes += alike.bytes;
            rest = behind;
        }
        plain(heads, 0).len() - rest.len()
    }

    /// Counts these plain heads, from the first on, that are in the region of the last lookup and whose frames begin
    /// with `addresses`. Compares all counted frames together: if one of them differs, returns 0.
    #[inline(always)]
    fn count_like<const HEADER: usize>(&self, space: &Space<'_>, heads: &[Head], addresses: &[u8; 12]) -> Discarded {
        let (mut alike, mut all) = (PrefixComparer::new(addresses), Discarded::default());
        for Head { first, .. } in heads {
            let Some(whole) = space.near(first.address, first.len()) else { break };
            // For a buffer shorter than the header, the subtraction wraps to a length that is too long.
            let len = whole.len().wrapping_sub(HEADER);
            if len > self.longest || !alike.add_after_header::<HEADER>(whole) {
                break;
            }
            all.frames += 1;
            all.bytes += len as u64;
        }
        if alike.all_match() && alike.headers() & ASKS == 0 { all } else { Discarded::default() }
    }

    /// Returns the length of the frame of a plain head in bytes, if the frame is plain and begins with `addresses`.
    fn like(&self, space: &mut Space<'_>, head: Head, addresses: &[u8; 12]) -> Option<usize> {
        let whole = space.view(head.first.address, head.first.len())?;
        let (word, frame) = (whole.first_word()?, whole.behind(self.header)?);
        (word & ASKS == 0 && frame.len() <= self.longest && begins_with(frame, addresses)).then_some(frame.len())
    }

    /// Returns the length of the frame in a chain of `chain` bytes. Returns 0 for a length that no frame has: the
    /// client chooses the length, and it goes into counters.
    fn frame_bytes(&self, chain: u64) -> u64 {
        let len = chain.saturating_sub(self.header as u64);
        if (SHORTEST_FRAME as u64..=MAX_FRAME as u64).contains(&len) { len } else { 0 }
    }

    fn skip(
        &mut self,
        guest: &GuestMemory,
        heads: &mut [Head],
        at: &mut R::At,
        most: usize,
        discarded: &mut Discarded,
    ) -> Result<(), RingFault> {
        let (mut space, mut steps) = (guest.space(), 0);
        loop {
            let room = most.saturating_sub(discarded.frames as usize);
            let want = RUN.min(room).min(self.taken.capacity() - self.taken.len());
            let count = self.ring.gather(*at, 0, &mut heads[..want])?;
            let mut rest = &heads[..count];
            while let Some(head) = rest.first() {
                // Chains of one descriptor are taken together.
                let plain = rest.iter().take_while(|head| head.first.unlike(0) == 0).count();
                if plain > 0 {
                    let (row, behind) = rest.split_at(plain);
                    self.taken.extend(row.iter().map(|head| self.ring.alone(head)));
                    discarded.bytes += row.iter().map(|head| self.frame_bytes(head.first.len().into())).sum::<u64>();
                    discarded.frames += plain as u64;
                    *at = self.ring.past(*at, plain);
                    rest = behind;
                    continue;
                }
                let mut len = 0;
                let chain = walk(&self.ring, &mut space, *at, *head, |_, descriptor| {
                    steps += 1;
                    if descriptor.flags() & WRITE != 0 {
                        return Err(RingFault::WritableInTransmit);
                    }
                    len += u64::from(descriptor.len());
                    Ok(())
                })?;
                *at = self.ring.after(*at, chain.slots);
                self.taken.push(chain);
                discarded.frames += 1;
                discarded.bytes += self.frame_bytes(len);
                if steps >= MOST_STEPS {
                    return Ok(());
                }
                rest = &rest[1..];
            }
            if !self.may_be_more(*at, &heads[..count], want) {
                return Ok(());
            }
        }
    }
}
