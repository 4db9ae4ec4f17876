//! A receive ring, and the frames that fit one buffer each.

use std::sync::atomic::Ordering;

use ringway_memory::{HEAD_BYTES, Head, View, prefetch_write};
use ringway_port::copy::{self, FEW, ROW, prefetch};
use ringway_port::guest::{GuestMemory, Space};
use ringway_switch::{Accepts, Frame};

use super::received::Received;
use super::{fcs, sums};
use crate::kept::{Place, Position};
use crate::rings::descriptor::{Table, Words, prefetch_run};
use crate::rings::fault::RingFault;
use crate::rings::format::{Format, NO_SUMS, Status};
use crate::rings::settings::ReceiveSettings;
use crate::rings::traffic::Group;

/// Shortest frame in bytes without frame check sequence. Shorter frames are padded.
pub(super) const SHORTEST: usize = 60;

/// Fills the unused places of a row.
static NO_BYTES: Head = Head([0; HEAD_BYTES]);

/// Where a delivery goes: what the caller knows of the ring at that moment.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The memory that the device may write.
    pub writable: &'a GuestMemory,
    /// The settings of reception.
    pub settings: &'a ReceiveSettings,
    /// The tail register: the first descriptor that does not belong to the device.
    pub tail: u32,
}

/// Descriptors with one buffer each.
struct Run<'a> {
    words: &'a [Words],
    /// Bytes of each buffer.
    size: usize,
}

/// A started receive ring.
#[derive(Debug)]
pub struct Receive {
    pub(super) table: Table,
    /// The next descriptor to fill.
    pub(super) head: u32,
    pub(super) format: Format,
    /// The first descriptor filled by this delivery, which is written last: its index, and its second word.
    pub(super) held: Option<(u32, u64)>,
    /// Where the position is noted for a successor of this process.
    place: Option<Place>,
}

impl Receive {
    /// The offloads that `deliver` accepts. It computes missing checksums itself and reports them as correct: a guest
    /// that forwards frames could not know that a checksum is missing.
    pub const ACCEPTS: Accepts = Accepts::CSUM;

    /// Starts a ring of `count` 16-byte descriptors at guest physical address `base`. The descriptor at `head` is the
    /// next to fill.
    ///
    /// # Errors
    /// The length, the base or the head is invalid.
    pub fn start(base: u64, count: u32, head: u32, format: Format) -> Result<Receive, RingFault> {
        let table = Table::new(base, count)?;
        table.check_head(head)?;
        Ok(Receive { table, head: head - head % format.words(), format, held: None, place: None })
    }

    /// Notes the position in `place` from now on.
    #[must_use]
    pub(crate) fn noted_in(mut self, place: Option<Place>) -> Receive {
        self.place = place;
        if let Some(place) = &self.place {
            place.begin(self.table.base(), self.position());
        }
        self
    }

    /// The ring as a predecessor has left it. Descriptors that the predecessor had written back in a delivery that it did not publish become
    /// descriptors of bad frames, which drivers drop: the driver has not seen them yet, and the frames cannot be completed. Returns the ring and the
    /// number of these descriptors.
    ///
    /// # Errors
    /// What was noted is no ring, or is not in memory.
    pub(crate) fn resume(
        base: u64,
        position: Position,
        format: Format,
        writable: &GuestMemory,
        tail: u32,
    ) -> Result<(Receive, u32), RingFault> {
        let mut ring = Receive::start(base, position.count, position.head, format)?;
        let words = ring.table.words(writable)?;
        let step = format.words();
        let is_done = |at: u32| format.is_done(&words[at as usize]);
        let mut bad = 0;
        if tail < ring.table.count() && ring.head != tail {
            let first = ring.head;
            let second = ring.table.after(first, step);
            let is_published = is_done(first);
            if is_published || second != tail && is_done(second) {
                // The first one of a delivery is written last.
                let mut at = second;
                while at != tail && is_done(at) {
                    if !is_published {
                        format.write_bad(&words[at as usize]);
                        bad += 1;
                    }
                    at = ring.table.after(at, step);
                }
                if !is_published {
                    format.write_bad(&words[first as usize]);
                    bad += 1;
                }
                ring.head = at;
            }
        }
        if writable.is_lost() { Err(RingFault::MemoryLost) } else { Ok((ring, bad)) }
    }

    fn position(&self) -> Position {
        Position { count: self.table.count(), head: self.head, next: self.head, contexts: false }
    }

    /// The ring rests after a fault, also in a successor of this process.
    pub(crate) fn set_broken(&mut self) {
        self.place.take().into_iter().for_each(Place::set_broken);
    }

    /// Returns the value of the head register: the next descriptor to fill.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns the number of free descriptors before `tail`.
    #[inline]
    #[must_use]
    pub fn free(&self, tail: u32) -> u32 {
        if tail < self.table.count() { self.table.ahead(self.head, tail) } else { 0 }
    }

    /// Returns the size of the ring in descriptors.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.table.count()
    }

    /// Delivers frames to the driver, in order, up to the first for which there are no descriptors. Calls `left` with
    /// that frame and all after it; `left` may count them.
    ///
    /// # Errors
    /// The ring is malformed. The frames delivered before the fault stay delivered; `left` gets the others.
    #[inline]
    pub fn deliver<'b, 'm: 'b>(
        &mut self,
        to: &Destination<'_>,
        mut frames: impl Iterator<Item = Frame<'b, 'm>> + Clone,
        received: &mut Received,
        mut left: impl FnMut(&Frame<'b, 'm>, &mut Received),
    ) -> Result<(), RingFault> {
        let result = self.give(to, &mut frames, received);
        for frame in frames {
            left(&frame, received);
        }
        result
    }

    #[inline(always)]
    fn give<'b, 'm: 'b>(
        &mut self,
        to: &Destination<'_>,
        frames: &mut (impl Iterator<Item = Frame<'b, 'm>> + Clone),
        received: &mut Received,
    ) -> Result<(), RingFault> {
        let &Destination { writable, settings, tail } = to;
        self.table.check_tail(tail)?;
        let words = self.table.words(writable)?;
        let before = self.table.ahead(self.head, tail);
        let mut space = writable.space();
        let mut result = Ok(());
        while self.head != tail {
            received.skip_unwanted(frames, settings);
            let end = if tail > self.head { tail } else { self.table.count() };
            let run = &words[self.head as usize..end as usize];
            let mut given = 0;
            if let Some(size) = self.format.single() {
                let run = Run { words: run, size };
                given = match frames.size_hint().1 {
                    Some(..=FEW) => self.give_plain::<FEW>(run, &space, frames, settings, received),
                    _ => self.give_plain::<ROW>(run, &space, frames, settings, received),
                };
                self.head = self.table.after(self.head, given as u32);
            }
            if given == run.len() {
                continue;
            }
            let Some(frame) = frames.clone().next() else { break };
            if received.judge(&frame, settings) {
                match self.give_pieces(words, &mut space, &frame, to, received) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(fault) => {
                        result = Err(fault);
                        break;
                    }
                }
            }
            frames.next();
        }
        if let Some((at, word)) = self.held.take() {
            self.format.write(&words[at as usize], word);
            // At once: a successor that did not know of it would write the same descriptors again.
            if let Some(place) = &self.place {
                place.set(self.position());
            }
        }
        let left = self.table.ahead(self.head, tail);
        received.low |= before > settings.low && left <= settings.low;
        // Lost pages read as zeroes, which can look like any other fault.
        if writable.is_lost() { Err(RingFault::MemoryLost) } else { result }
    }

    /// Delivers frames to descriptors with one buffer each, in rows of `ROW`. Stops at the first frame
    /// that does not fit, does not pass the filters, or whose buffer is not in the region of the last lookup. Returns
    /// the number of frames delivered.
    #[inline(always)]
    fn give_plain<'b, 'm: 'b, const ROW: usize>(
        &mut self,
        run: Run<'_>,
        space: &Space<'_>,
        frames: &mut (impl Iterator<Item = Frame<'b, 'm>> + Clone),
        settings: &ReceiveSettings,
        received: &mut Received,
    ) -> usize {
        let Run { words: run, size } = run;
        let fcs = if settings.strip_fcs { 0 } else { fcs::BYTES };
        let longest = if size < SHORTEST + fcs { 0 } else { settings.longest.min(size - fcs) };
        let mut buffers = [View::private(&mut []); ROW];
        let mut firsts = [&NO_BYTES; ROW];
        let mut given = 0;
        loop {
            prefetch_run(&run[given..], |line| prefetch_write(line.cast_mut()));
            let row = frames.clone();
            let mut all = Row { short: fcs == 0, ..Row::default() };
            for (((words, buffer), first), frame) in
                run[given..].iter().zip(&mut buffers).zip(&mut firsts).zip(frames.clone())
            {
                let (head, len) = (frame.head(), frame.len());
                let is_tagged = settings.strip_tag && settings.filters.tag_of(&head.0, len).is_some();
                if !settings.filters.passes(&head.0, len) || len > longest || is_tagged {
                    break;
                }
                let (address, total) = (u64::from_le(words[0].load(Ordering::Relaxed)), len.max(SHORTEST) + fcs);
                let Some(room) = space.near(address, total as u32) else { break };
                (*buffer, *first) = (room, head);
                all.add(&frame);
            }
            if all.count > 0 {
                frames.nth(all.count - 1);
            }
            let (buffers, firsts) = (&buffers[..all.count], &firsts[..all.count]);
            let words = &run[given..given + all.count];
            if all.short {
                copy::write_short_row::<0>(buffers, firsts);
                let word = self.format.only(Status::new(NO_SUMS, None), 0);
                let format = self.format;
                self.give_back_row(words, given, buffers.iter().map(|buffer| format.with_len(word, buffer.len())));
            } else {
                buffers.iter().for_each(|buffer| prefetch(*buffer, prefetch_write));
                buffers.iter().zip(row.clone()).for_each(|(buffer, frame)| copy::touch(*buffer, &frame));
                for (buffer, frame) in buffers.iter().zip(row.clone()) {
                    copy::write(*buffer, &frame);
                    write_zeroes(*buffer, frame.len());
                }
                let format = self.format;
                self.give_back_row(
                    words,
                    given,
                    buffers.iter().zip(row.clone()).map(|(buffer, frame)| {
                        let sums = sums::finish(*buffer, &frame, settings, format);
                        if fcs > 0 {
                            fcs::put(*buffer);
                        }
                        format.only(Status::new(sums, None), buffer.len())
                    }),
                );
            }
            all.count_in(row, received);
            given += all.count;
            if all.count < ROW {
                return given;
            }
        }
    }

    /// Writes descriptors back; the first of them is `given` after the head. Holds back the first descriptor of the
    /// delivery.
    #[inline(always)]
    fn give_back_row(&mut self, words: &[Words], given: usize, second: impl Iterator<Item = u64>) {
        let mut both = words.iter().zip(second);
        if self.held.is_none() {
            self.held = both.next().map(|(_, word)| (self.head + given as u32, word));
        }
        both.for_each(|(words, word)| self.format.write(words, word));
    }
}

/// What the frames of a row have in common.
#[derive(Clone, Copy, Default)]
struct Row {
    count: usize,
    bytes: usize,
    /// Length of the last frame.
    len: usize,
    /// 0 if all frames have the same length.
    uneven: usize,
    /// Even if no frame has a group address.
    groups: u8,
    /// True if only the heads of the frames have to be written: no frame has further bytes or needs padding.
    short: bool,
}

impl Row {
    #[inline(always)]
    fn add(&mut self, frame: &Frame<'_, '_>) {
        let len = frame.len();
        self.uneven |= if self.count == 0 { 0 } else { len ^ self.len };
        self.groups |= frame.head().0[0];
        self.short &= frame.is_short() && len >= SHORTEST;
        (self.count, self.bytes, self.len) = (self.count + 1, self.bytes + len, len);
    }

    /// Counts these frames.
    #[inline(always)]
    fn count_in<'b, 'm: 'b>(&self, frames: impl Iterator<Item = Frame<'b, 'm>>, received: &mut Received) {
        received.bytes += self.bytes as u64;
        if self.uneven == 0 && self.groups & 1 == 0 {
            received.traffic.add(Group::None, self.len.max(SHORTEST), self.count as u64);
        } else {
            for frame in frames.take(self.count) {
                received.traffic.add(Group::of(&frame.head().0), frame.len().max(SHORTEST), 1);
            }
        }
    }
}

/// Writes zeroes after the first `from` bytes: the padding, and the place of a frame check sequence.
#[inline(always)]
pub(super) fn write_zeroes(buffer: View<'_>, from: usize) {
    const MOST: usize = SHORTEST + fcs::BYTES;
    if let Some(behind) = buffer.behind(from) {
        let _ = behind.write(&[0; MOST][..behind.len().min(MOST)]);
    }
}
