//! Frames that go back unseen: of each no more than its descriptors is read.

use ringway_switch::Discarded;

use super::{MOST_STEPS, Transmit};
use crate::guest::GuestMemory;
use crate::virtqueue::RingFault;
use crate::virtqueue::ring::{Chain, Head, INDIRECT, NEXT, RUN, Ring, WRITE, walk};

impl<R: Ring> Transmit<R> {
    /// Takes frames until `discarded` stands at `most` frames, or there are no more. The next release gives them back.
    ///
    /// # Errors
    /// The ring is not as it must be.
    pub fn discard(&mut self, guest: &GuestMemory, most: usize, discarded: &mut Discarded) -> Result<(), RingFault> {
        let memory = self.ring.memory(guest).ok_or(RingFault::MemoryLost)?;
        self.ring.refresh(memory)?;
        let mut heads = std::mem::take(&mut self.heads);
        let mut at = self.ring.first();
        let result = self.skip(memory, guest, &mut heads, &mut at, most, discarded);
        self.heads = heads;
        if let Some(noted) = &self.noted {
            noted.note(self.ring.base(), self.ring.base_of(at));
        }
        result
    }

    fn skip(
        &mut self,
        memory: R::Memory<'_>,
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
            let count = self.ring.gather(memory, *at, &mut heads[..want])?;
            for head in &heads[..count] {
                let mut len = 0;
                let chain = if head.first.flags() & (NEXT | WRITE | INDIRECT) == 0 {
                    len = u64::from(head.first.len());
                    Chain { id: head.id, slots: 1 }
                } else {
                    walk(&self.ring, memory, &mut space, *at, *head, |_, descriptor| {
                        steps += 1;
                        if descriptor.flags() & WRITE != 0 {
                            return Err(RingFault::WritableInTransmit);
                        }
                        len += u64::from(descriptor.len());
                        Ok(())
                    })?
                };
                *at = self.ring.after(*at, chain.slots);
                self.taken.push(chain);
                discarded.frames += 1;
                discarded.bytes += len.saturating_sub(self.header as u64);
                if steps >= MOST_STEPS {
                    return Ok(());
                }
            }
            if !self.may_be_more(*at, &heads[..count], want) {
                return Ok(());
            }
        }
    }
}
