//! Frames that do not fit one buffer as they are: over several buffers, without their tag, across regions.

use std::sync::atomic::Ordering;

use ringway_memory::View;
use ringway_port::copy::Source;
use ringway_port::guest::{Space, count_work};
use ringway_switch::Frame;

use super::queue::{Destination, Receive, SHORTEST, write_zeroes};
use super::received::Received;
use super::{fcs, sums};
use crate::rings::descriptor::Words;
use crate::rings::fault::RingFault;
use crate::rings::format::{NO_SUMS, Status};
use crate::rings::traffic::Group;

/// Most descriptors of a frame: enough for 16 KiB in buffers of 256 bytes.
const LONGEST: usize = 80;
/// `PIECES`: most pieces of memory that the buffers of a frame may be in. `ACROSS`: most of these that exist because a
/// buffer spans several regions. No guest has so small regions that a frame needs more.
const PIECES: usize = 4 * LONGEST + ACROSS;
const ACROSS: usize = 40;
/// Bytes of a VLAN tag, and its offset in a frame.
const TAG: usize = 4;
const ADDRESSES: usize = 12;

impl Receive {
    /// Delivers a frame to one or several descriptors of any format. Returns false if there are too few.
    #[cold]
    #[inline(never)]
    pub(super) fn give_pieces(
        &mut self,
        words: &[Words],
        space: &mut Space<'_>,
        frame: &Frame<'_, '_>,
        to: &Destination<'_>,
        received: &mut Received,
    ) -> Result<bool, RingFault> {
        let &Destination { writable, settings, tail } = to;
        let tag = settings.filters.tag_of(&frame.head().0, frame.len()).filter(|_| settings.strip_tag);
        let (mut head, mut head_len) = (*frame.head(), frame.head_len());
        let taken = if tag.is_some() { TAG } else { 0 };
        if tag.is_some() {
            head.0.copy_within(ADDRESSES + TAG.., ADDRESSES);
            head_len = head_len.saturating_sub(TAG);
        }
        let on_wire = frame.len().max(SHORTEST);
        let total = on_wire - taken + if settings.strip_fcs { 0 } else { fcs::BYTES };
        let room = self.format.room();
        let slots = total.checked_div(room).map_or(usize::MAX, |whole| whole + usize::from(whole * room < total));
        let step = self.format.words();
        // A frame that would not fit even into all descriptors together must not wait for them.
        if slots > LONGEST || slots as u32 * step >= self.table.count() {
            received.long += 1;
            return Ok(true);
        }
        if slots as u32 * step > self.table.ahead(self.head, tail) {
            return Ok(false);
        }

        let mut pieces = FrameBuffers { views: [View::private(&mut []); PIECES], count: 0 };
        let (mut at, mut left, mut across) = (self.head, total, 0);
        for _ in 0..slots {
            let parts = self.format.parts(left.min(room));
            let second = self.table.after(at, step - 1) as usize;
            let places = [&words[at as usize][0], &words[at as usize][1], &words[second][0], &words[second][1]];
            for (word, part) in places.into_iter().zip(parts).filter(|(_, part)| *part > 0) {
                let (address, len) = (u64::from_le(word.load(Ordering::Relaxed)), part as u32);
                count_work(1);
                if let Some(view) = space.view(address, len) {
                    pieces.add(view);
                    continue;
                }
                for view in writable.pieces(address, len).ok_or(RingFault::BadAddress { address, len })? {
                    across += 1;
                    if across > ACROSS || !pieces.add(view) {
                        return Err(RingFault::BadAddress { address, len });
                    }
                }
            }
            (at, left) = (self.table.after(at, step), left - left.min(room));
        }

        pieces.fill(Source::with_head(&head.0[..head_len], frame));
        let said = frame.offload().map_or(NO_SUMS, |offload| {
            let start = usize::from(offload.csum_start);
            let field = (start + usize::from(offload.csum_offset)).saturating_sub(taken);
            pieces.put(field, &frame.checksum_from(start));
            sums::told(frame, offload, settings, self.format)
        });
        if !settings.strip_fcs {
            let len = total - fcs::BYTES;
            let tag = tag.and_then(|_| frame.head().0[ADDRESSES..].first_chunk().copied());
            pieces.put(len, &fcs::of(pieces.views[..pieces.count].iter().copied(), len, tag));
        }

        let (status, mut left) = (Status::new(said, tag), total);
        for _ in 0..slots {
            let part = left.min(room);
            left -= part;
            self.give_back(words, self.format.outcome(status, part, left == 0));
        }
        received.traffic.add(Group::of(&frame.head().0), on_wire, 1);
        received.bytes += frame.len() as u64;
        Ok(true)
    }

    /// Writes the next descriptor back.
    fn give_back(&mut self, words: &[Words], outcome: [u64; 4]) {
        let step = self.format.words();
        if step == 2 {
            let second = &words[self.table.after(self.head, 1) as usize];
            second[0].store(outcome[2].to_le(), Ordering::Relaxed);
            second[1].store(outcome[3].to_le(), Ordering::Relaxed);
            words[self.head as usize][0].store(outcome[0].to_le(), Ordering::Relaxed);
        }
        match self.held {
            None => self.held = Some((self.head, outcome[1])),
            Some(_) => self.format.write(&words[self.head as usize], outcome[1]),
        }
        self.head = self.table.after(self.head, step);
    }
}

/// The memory that a frame is written to, in order.
struct FrameBuffers<'m> {
    views: [View<'m>; PIECES],
    count: usize,
}

impl<'m> FrameBuffers<'m> {
    /// Adds a view. Returns false if there are too many.
    fn add(&mut self, view: View<'m>) -> bool {
        let place = self.views.get_mut(self.count).map(|place| *place = view);
        self.count += usize::from(place.is_some());
        place.is_some()
    }

    /// Copies the rest of the frame, and writes zeroes after it.
    fn fill(&self, mut source: Source<'_, '_>) {
        for view in &self.views[..self.count] {
            let filled = source.fill(*view);
            write_zeroes(*view, filled);
        }
    }

    fn put(&self, mut offset: usize, bytes: &[u8]) {
        let mut left = bytes;
        for view in &self.views[..self.count] {
            if let Some(room) = view.behind(offset) {
                let (now, later) = left.split_at(left.len().min(room.len()));
                let _ = room.write(now);
                left = later;
            }
            offset = offset.saturating_sub(view.len());
        }
    }
}
