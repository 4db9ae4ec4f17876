//! Frames that go back unseen: of each no more than its descriptors is read.

use ringway_memory::prefetch_read;
use ringway_switch::Discarded;

use super::{ASKS, MOST_STEPS, Transmit};
use crate::copy::{ROW, prefetch};
use crate::gather::begins_with;
use crate::guest::{GuestMemory, Space};
use crate::virtqueue::RingFault;
use crate::virtqueue::ring::{Head, RUN, Ring, WRITE, walk};

impl<R: Ring> Transmit<R> {
    /// Takes frames until `discarded` stands at `most` frames, or there are no more. The next release gives them back.
    ///
    /// # Errors
    /// The ring is not as it must be.
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

    /// As [`Transmit::discard`], up to the first frame that is not plain or does not begin with `addresses`.
    ///
    /// # Errors
    /// The ring is not as it must be.
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

    /// Takes the first of these heads that are plain frames with such addresses; how many.
    fn skip_like(
        &mut self,
        space: &mut Space<'_>,
        heads: &[Head],
        addresses: &[u8; 12],
        discarded: &mut Discarded,
    ) -> usize {
        let mut taken = 0;
        for row in heads.chunks(ROW) {
            let mut wholes = [None; ROW];
            for (head, whole) in row.iter().zip(&mut wholes) {
                let plain = head.first.unlike(0) == 0;
                let (address, len) = (head.first.address, head.first.len());
                *whole = space.near(address, len).or_else(|| space.view(address, len)).filter(|_| plain);
                whole.inspect(|whole| prefetch(*whole, |line| prefetch_read(line)));
            }
            for (head, whole) in row.iter().zip(&wholes) {
                let asks = whole.is_none_or(|whole| whole.first_word().is_none_or(|word| word & ASKS != 0));
                let frame = whole.and_then(|whole| whole.behind(self.header)).filter(|_| !asks);
                let Some(frame) = frame.filter(|frame| frame.len() <= self.longest && begins_with(*frame, addresses))
                else {
                    return taken;
                };
                self.taken.push(self.ring.alone(head));
                taken += 1;
                discarded.frames += 1;
                discarded.bytes += frame.len() as u64;
            }
        }
        taken
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
                // Frames of one descriptor each go by the row.
                let plain = rest.iter().take_while(|head| head.first.unlike(0) == 0).count();
                if plain > 0 {
                    let (row, behind) = rest.split_at(plain);
                    self.taken.extend(row.iter().map(|head| self.ring.alone(head)));
                    let len = |head: &Head| u64::from(head.first.len()).saturating_sub(self.header as u64);
                    discarded.bytes += row.iter().map(len).sum::<u64>();
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
                discarded.bytes += len.saturating_sub(self.header as u64);
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
