//! Where the frames of a batch go.

use ringway_memory::Head;

use super::destination::{Destination, Packed};
use super::storage::Batch;
use crate::frame::{DropReason, Mac};

/// Frames whose addresses are compared at once.
const ROW: usize = 8;

impl Batch<'_> {
    /// Where frame `index` goes.
    #[inline]
    #[must_use]
    pub fn destination(&self, index: usize) -> Destination {
        self.parts.entries[index].destination.unpack()
    }

    /// Drops frame `index` before forwarding. Forwarding does not change its destination.
    pub fn reject(&mut self, index: usize, reason: DropReason) {
        self.parts.entries[index].destination = Packed(Packed::REJECTED | reason as u32);
        (self.parts.rejected, self.parts.same_destination) = (true, false);
    }

    /// Returns true if frame `index` was rejected.
    #[inline]
    #[must_use]
    pub fn is_rejected(&self, index: usize) -> bool {
        self.parts.rejected && self.parts.entries[index].destination.0 >= Packed::REJECTED
    }

    /// Sets the destination of every frame. `decide` gets source and destination address. A frame with the addresses of
    /// the frame before gets its destination without a call of `decide`.
    #[inline]
    pub fn set_destinations(&mut self, mut decide: impl FnMut(Mac, Mac) -> Destination) {
        if self.parts.rejected {
            return self.set_destinations_of_accepted(decide);
        }
        let count = self.parts.count;
        if self.parts.same_header && count > 0 {
            let head = &self.parts.heads[0].0;
            let destination = Packed::new(decide(Mac::source(head), Mac::destination(head)));
            self.parts.entries[..count].iter_mut().for_each(|entry| entry.destination = destination);
            self.parts.same_destination = true;
            return;
        }
        let (mut last, mut decided, alike) = (((0, 0), None), 0, self.leading_alike());
        if alike > 0 {
            let head = &self.parts.heads[0].0;
            let destination = Packed::new(decide(Mac::source(head), Mac::destination(head)));
            self.parts.entries[..alike].iter_mut().for_each(|entry| entry.destination = destination);
            (last, decided) = ((Mac::both(head), Some(destination)), 1);
        }
        for (head, entry) in self.parts.heads[alike..count].iter().zip(&mut self.parts.entries[alike..count]) {
            let addresses = Mac::both(&head.0);
            entry.destination = match last {
                (before, Some(destination)) if before == addresses => destination,
                _ => {
                    decided += 1;
                    Packed::new(decide(Mac::source(&head.0), Mac::destination(&head.0)))
                }
            };
            last = (addresses, Some(entry.destination));
        }
        self.parts.same_destination = decided == 1;
    }

    /// Returns true if all frames are known to have the same addresses and, if the switch has VLANs, the same class.
    pub(crate) fn has_one_header(&self, has_vlans: bool) -> bool {
        (self.parts.same_header || self.leading_alike() == self.parts.count)
            && (!has_vlans || self.parts.class.is_some())
    }

    /// Number of leading frames with the addresses of the first, in whole rows.
    #[inline]
    fn leading_alike(&self) -> usize {
        let (rows, _) = self.parts.heads[..self.parts.count].as_chunks::<ROW>();
        let Some([first, ..]) = rows.first() else { return 0 };
        let words = |head: &Head| [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| head.0[at + byte])));
        let first = words(first);
        let is_like = |row: &&[Head; ROW]| {
            let unlike = row.iter().fold([0; 2], |all, head| {
                let words = words(head);
                [all[0] | words[0] ^ first[0], all[1] | words[1] ^ first[1]]
            });
            // Twelve bytes.
            unlike[0] | unlike[1] << 32 == 0
        };
        ROW * rows.iter().take_while(is_like).count()
    }

    /// Sets the destination of every frame that was not rejected.
    #[cold]
    fn set_destinations_of_accepted(&mut self, mut decide: impl FnMut(Mac, Mac) -> Destination) {
        for (head, entry) in self.parts.heads.iter().zip(&mut self.parts.entries[..]).take(self.parts.count) {
            if entry.destination.0 < Packed::REJECTED {
                entry.destination = Packed::new(decide(Mac::source(&head.0), Mac::destination(&head.0)));
            }
        }
    }

    /// Sets the destination of every frame. `decide` gets the frame's VLAN (0 without `vlans`), source and destination
    /// address. A frame with the VLAN and the addresses of the frame before gets its destination without a call of
    /// `decide`.
    #[inline]
    pub(crate) fn set_destinations_by_vlan(
        &mut self,
        vlans: bool,
        mut decide: impl FnMut(u16, Mac, Mac) -> Destination,
    ) {
        match self.parts.class {
            _ if !vlans => self.set_destinations(|source, destination| decide(0, source, destination)),
            Some(class) => self.set_destinations(|source, destination| decide(class.vlan(), source, destination)),
            None => self.set_destinations_of_mixed(decide),
        }
    }

    #[inline(never)]
    fn set_destinations_of_mixed(&mut self, mut decide: impl FnMut(u16, Mac, Mac) -> Destination) {
        let mut last = (((0, 0), 0), None);
        for ((head, entry), class) in
            self.parts.heads.iter().zip(&mut self.parts.entries[..]).zip(&self.parts.classes).take(self.parts.count)
        {
            if self.parts.rejected && entry.destination.0 >= Packed::REJECTED {
                continue;
            }
            let key = (Mac::both(&head.0), class.vlan());
            entry.destination = match last {
                (before, Some(destination)) if before == key => destination,
                _ => Packed::new(decide(class.vlan(), Mac::source(&head.0), Mac::destination(&head.0))),
            };
            last = (key, Some(entry.destination));
        }
    }

    /// Sets the destination of frame `index`.
    #[inline]
    pub fn set_destination(&mut self, index: usize, destination: Destination) {
        self.parts.same_destination = false;
        self.parts.entries[index].destination = Packed::new(destination);
    }

    /// The destination of all frames, if it is one.
    #[inline(always)]
    pub(crate) fn only_destination(&self) -> Option<Destination> {
        match self.parts.entries.first() {
            Some(entry) if self.parts.same_destination && self.parts.count > 0 => Some(entry.destination.unpack()),
            _ => self.run(0).filter(|(_, end)| *end == self.parts.count).map(|(destination, _)| destination),
        }
    }

    /// The destination of frame `first`, and the end of the run of frames with that destination which begins there.
    /// Returns `None` after the last frame.
    #[inline]
    pub(crate) fn run(&self, first: usize) -> Option<(Destination, usize)> {
        let (entry, others) = self.parts.entries[..self.parts.count].get(first..)?.split_first()?;
        if self.parts.same_destination {
            return Some((entry.destination.unpack(), self.parts.count));
        }
        let more = others.iter().take_while(|other| other.destination == entry.destination).count();
        Some((entry.destination.unpack(), first + 1 + more))
    }
}
