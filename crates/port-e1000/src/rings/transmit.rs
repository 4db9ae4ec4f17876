//! Frames from a driver: the transmit ring (SDM 3.3 and 3.4).

use std::sync::atomic::Ordering;

use ringway_memory::{View, prefetch_read};
use ringway_port::copy::{ROW, prefetch};
use ringway_port::gather::{Bounce, Gather, MAX_FRAME};
use ringway_port::guest::{GuestMemory, Space, count_work};
use ringway_switch::{Batch, Discarded, MAX_BATCH};

use super::context::Contexts;
use super::descriptor::{EOP, IDE, Kind, RS, TX_DONE, Table, Transmitted, Words, prefetch_run};
use super::draft::{FrameRequest, HEADER, Pushed, SHORTEST};
use super::fault::RingFault;
use super::mark::Mark;
use super::settings::TransmitSettings;
use super::traffic::Traffic;
use crate::kept::{CONTEXT_WORDS, Place, Position};

/// Most descriptors of a frame.
const LONGEST_FRAME: u32 = 1024;
/// A collect ends after this many steps, so that a turn is bounded. Steps are descriptors of frames in several pieces
/// or of no frame, and pieces of buffers that span several regions. The next turn takes the rest: the ring is still
/// pending.
const MOST_STEPS: u32 = 4096;
/// The results of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Completed descriptors, context descriptors included.
    pub descriptors: u32,
    /// True if some were written back: they had RS set.
    pub reported: bool,
    /// True if all that were written back had IDE set: the interrupt may be delayed.
    pub delay: bool,
    /// True if the ring is empty.
    pub empty: bool,
    /// The sent frames. Segments count one by one.
    pub traffic: Traffic,
    /// Frames sent for segmentation (TSCTC).
    pub segmented: u64,
    /// Frames for segmentation whose length differs from that in their context, or whose headers are not where the
    /// context says (TSCTFC).
    pub failed: u64,
}

/// A started transmit ring.
#[derive(Debug)]
pub struct Transmit {
    table: Table,
    /// The first descriptor that is not completed.
    head: u32,
    /// The first descriptor that is not taken.
    next: u32,
    /// The tail as of the last collect.
    tail: u32,
    /// True if the last frame does not end before the tail.
    incomplete: bool,
    contexts: Contexts,
    /// The contexts before the last collect.
    before: Contexts,
    /// `marks`: the frames of the last collect. `marked`: how many of these entries are in use.
    marks: Box<[Mark]>,
    marked: usize,
    segmented: u64,
    failed: u64,
    /// Where the position is noted for a successor of this process, and the contexts as they are noted there.
    place: Option<Place>,
    noted: Contexts,
    /// Which copy of the contexts holds.
    second: bool,
}

/// The result of one step through the ring.
enum Step {
    /// Took `slots` descriptors, with `pieces` additional pieces of buffers that span several regions.
    Took { slots: u32, pieces: u32 },
    /// Took nothing: a frame has to wait for the next batch.
    Wait,
    /// Took nothing: a frame ends beyond the tail.
    Incomplete,
}

impl Transmit {
    /// Starts a ring of `count` descriptors at guest physical address `base`. The descriptor at `head` is the next to
    /// send.
    ///
    /// # Errors
    /// The length, the base or the head is invalid.
    pub fn start(base: u64, count: u32, head: u32) -> Result<Transmit, RingFault> {
        let table = Table::new(base, count)?;
        table.check_head(head)?;
        Ok(Transmit {
            table,
            head,
            next: head,
            tail: head,
            incomplete: false,
            contexts: Contexts::default(),
            before: Contexts::default(),
            marks: vec![Mark::NONE; MAX_BATCH].into(),
            marked: 0,
            segmented: 0,
            failed: 0,
            place: None,
            noted: Contexts::default(),
            second: false,
        })
    }

    /// Notes the position in `place` from now on.
    #[must_use]
    pub(crate) fn noted_in(mut self, place: Option<Place>) -> Transmit {
        self.place = place;
        if let Some(place) = &self.place {
            place.set_contexts(self.second, self.contexts.words());
            self.noted = self.contexts;
            place.begin(self.table.base(), self.position());
        }
        self
    }

    /// The ring as a predecessor has left it. Completes the descriptors that the predecessor had taken and not completed: their frames may have
    /// been sent, and are not sent again. `tail`: those from there on are other ones, which the driver has written since because the predecessor
    /// had completed the first ones before it ended.
    ///
    /// # Errors
    /// What was noted is no ring, or is not in memory.
    pub(crate) fn resume(
        base: u64,
        position: Position,
        contexts: [u64; CONTEXT_WORDS],
        writable: &GuestMemory,
        tail: u32,
    ) -> Result<Transmit, RingFault> {
        let Position { count, head, next, .. } = position;
        let mut ring = Transmit::start(base, count, next)?;
        ring.table.check_head(head)?;
        ring.contexts = Contexts::of_words(contexts);
        let words = ring.table.words(writable)?;
        // The driver's new descriptors begin at `next`. If they reach beyond `head`, it has seen that the others were completed.
        let reached = if tail < count { ring.table.ahead(next, tail) } else { 0 };
        let seen = reached.saturating_sub(ring.table.ahead(next, head));
        let mut at = ring.table.after(head, seen.min(ring.table.ahead(head, next)));
        while at != next {
            let word = &words[at as usize][1];
            let before = u64::from_le(word.load(Ordering::Relaxed));
            if before & RS != 0 && before & TX_DONE == 0 {
                word.store((before | TX_DONE).to_le(), Ordering::Release);
            }
            at = ring.table.after(at, 1);
        }
        if writable.is_lost() { Err(RingFault::MemoryLost) } else { Ok(ring) }
    }

    fn position(&self) -> Position {
        Position { count: self.table.count(), head: self.head, next: self.next, contexts: self.second }
    }

    /// Notes the position, and before it the contexts if they have changed.
    #[inline(always)]
    fn note(&mut self) {
        if self.contexts != self.noted {
            self.note_contexts();
        }
        self.note_position();
    }

    #[inline(always)]
    fn note_position(&self) {
        if let Some(place) = &self.place {
            place.set(self.position());
        }
    }

    #[cold]
    fn note_contexts(&mut self) {
        (self.second, self.noted) = (!self.second, self.contexts);
        self.place.iter().for_each(|place| place.set_contexts(self.second, self.contexts.words()));
    }

    /// The ring rests after a fault, also in a successor of this process.
    pub(crate) fn set_broken(&mut self) {
        self.place.take().into_iter().for_each(Place::set_broken);
    }

    /// Returns the value of the head register: the first descriptor that is not completed.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns the size of the ring in descriptors.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.table.count()
    }

    /// Returns true if there may be frames before `tail`.
    #[inline]
    #[must_use]
    pub fn pending(&self, tail: u32) -> bool {
        tail != self.next && !(self.incomplete && tail == self.tail)
    }

    /// Takes frames while the batch has room.
    ///
    /// # Errors
    /// The ring is malformed. Frames that are in the batch may be delivered.
    #[inline]
    pub fn collect<'m>(
        &mut self,
        readable: &'m GuestMemory,
        bounce: &'m Bounce,
        tail: u32,
        settings: &TransmitSettings,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingFault> {
        if !self.pending(tail) {
            return Ok(());
        }
        let words = self.begin(readable, tail)?;
        (self.before, self.marked) = (self.contexts, 0);
        let result = self.take(words, readable, bounce, settings, batch);
        // Before the frames go anywhere: no successor takes them again.
        self.note();
        // Lost pages read as zeroes, which can look like any other fault. `release` does not see the loss if the memory
        // of the frames is read-only.
        if readable.is_lost() { Err(RingFault::MemoryLost) } else { result }
    }

    /// Undoes the last collect, from which no frame was refused, except for its first `frames` frames. The others will
    /// be collected again.
    pub fn rewind(&mut self, readable: &GuestMemory, frames: usize) {
        let mut left = frames;
        let Some(cut) = self.marks[..self.marked].iter().position(|mark| {
            let all = mark.frames() <= left;
            left = left.saturating_sub(mark.frames() * usize::from(all));
            !all
        }) else {
            return;
        };
        // If nothing is left of the mark at the cut, it is not shortened: its beginning may be the end of the ring.
        if left > 0 {
            self.marks[cut] = self.marks[cut].first(left);
        }
        self.marked = cut + usize::from(left > 0);
        self.next = self.marks[..self.marked].last().map_or(self.head, |last| self.table.after(0, last.next()));
        (self.incomplete, self.contexts) = (false, self.before);
        (self.segmented, self.failed) = (0, 0);
        // Applies the context descriptors before the remaining frames again.
        if let Ok(words) = self.table.words(readable) {
            let mut at = self.head;
            while at != self.next {
                let descriptor = Transmitted::read(&words[at as usize]);
                if descriptor.kind() == Kind::Context {
                    self.contexts.set(descriptor);
                }
                at = self.table.after(at, 1);
            }
        }
        self.note();
    }

    /// Notes the tail. Returns the descriptors.
    #[inline]
    fn begin<'m>(&mut self, readable: &'m GuestMemory, tail: u32) -> Result<&'m [Words], RingFault> {
        self.table.check_tail(tail)?;
        (self.tail, self.incomplete) = (tail, false);
        self.table.words(readable)
    }

    #[inline(always)]
    fn take<'m>(
        &mut self,
        words: &[Words],
        readable: &'m GuestMemory,
        bounce: &'m Bounce,
        settings: &TransmitSettings,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingFault> {
        let mut space = readable.space();
        let mut row = [View::private(&mut []); ROW];
        let mut steps = 0;
        while self.next != self.tail && batch.room() > 0 && steps < MOST_STEPS {
            let end = if self.tail > self.next { self.tail } else { self.table.count() };
            let run = &words[self.next as usize..end as usize];
            let plain = self.take_plain(run, &space, &mut row, settings, batch);
            if plain == run.len() {
                continue;
            }
            if batch.room() == 0 {
                break;
            }
            let first = batch.len();
            match self.take_one(words, &mut space, bounce, settings, batch)? {
                Step::Took { slots, pieces } => {
                    self.next = self.table.after(self.next, slots);
                    if batch.len() > first {
                        self.marks[self.marked] = Mark::of(&batch.frame(first), self.next);
                        self.marked += 1;
                    }
                    steps += slots + pieces;
                    batch.note_steps(u64::from(slots + pieces));
                }
                Step::Wait => break,
                Step::Incomplete => {
                    self.incomplete = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes frames until the first that is not plain. A plain frame is in one descriptor, in the region of the last
    /// lookup, and asks for no insertion or offload. Returns the number of frames taken.
    #[inline(always)]
    fn take_plain<'m>(
        &mut self,
        run: &[Words],
        space: &Space<'m>,
        row: &mut [View<'m>; ROW],
        settings: &TransmitSettings,
        batch: &mut Batch<'m>,
    ) -> usize {
        let shortest = if settings.pad { SHORTEST } else { HEADER };
        let mut taken = 0;
        loop {
            prefetch_run(&run[taken..], prefetch_read);
            let (mut found, mut len, mut odd) = (0, 0, 0);
            for (words, place) in run[taken..].iter().zip(row.iter_mut()) {
                let descriptor = Transmitted::read(words);
                let Some(view) = space.near(descriptor.address, descriptor.len()) else { break };
                if !descriptor.is_plain() || view.len() < shortest || view.len() > settings.longest {
                    break;
                }
                prefetch(view, |line| prefetch_read(line));
                odd |= if found == 0 { 0 } else { len ^ view.len() };
                len = view.len();
                *place = view;
                found += 1;
            }
            let first = batch.len();
            let filled = batch.fill(&row[..found]);
            self.next += filled as u32;
            self.mark_row(batch, first, filled, (odd == 0).then_some(len));
            taken += filled;
            if filled < ROW {
                self.next = self.table.after(self.next, 0);
                return taken;
            }
        }
    }

    /// Marks the `count` frames of the batch from `first` on, whose descriptors end at `self.next`. `len` is their
    /// length if all have the same.
    #[inline(always)]
    fn mark_row(&mut self, batch: &Batch<'_>, first: usize, count: usize, len: Option<usize>) {
        let groups = (first..first + count).fold(0, |groups, index| groups | batch.head(index)[0]) & 1;
        if let (0, Some(len), 1..) = (groups, len, count) {
            self.marks[self.marked] = Mark::alike(count, len, self.next);
            self.marked += 1;
            return;
        }
        let marks = self.marks[self.marked..].iter_mut().zip(first..first + count);
        for ((mark, index), next) in marks.zip(self.next - count as u32 + 1..) {
            *mark = Mark::whole(batch.head(index), batch.frame_len(index), next);
        }
        self.marked += count;
    }

    /// Takes a frame of any kind.
    #[inline(never)]
    fn take_one<'m>(
        &mut self,
        words: &[Words],
        space: &mut Space<'m>,
        bounce: &'m Bounce,
        settings: &TransmitSettings,
        batch: &mut Batch<'m>,
    ) -> Result<Step, RingFault> {
        let first = Transmitted::read(&words[self.next as usize]);
        match first.kind() {
            Kind::Legacy | Kind::Data => {}
            kind => {
                if kind == Kind::Context {
                    self.contexts.set(first);
                }
                return Ok(Step::Took { slots: 1, pieces: 0 });
            }
        }
        let mut gather = Gather::new(bounce);
        let mut pieces = 0;
        let mut add = |gather: &mut Gather<'m>, descriptor: Transmitted| {
            let (address, len) = (descriptor.address, descriptor.len());
            count_work(1);
            if address == 0 || len == 0 {
                return Ok(());
            }
            if let Some(view) = space.view(address, len) {
                gather.add(view);
                return Ok(());
            }
            for view in space.pieces(address, len).ok_or(RingFault::BadAddress { address, len })? {
                pieces += 1;
                if !gather.add(view) {
                    break;
                }
            }
            Ok(())
        };
        let (mut last, mut slots) = (first, 1);
        add(&mut gather, first)?;
        let ahead = self.table.ahead(self.next, self.tail);
        while !last.has(EOP) {
            if slots >= LONGEST_FRAME || slots + 1 >= self.table.count() {
                return Err(RingFault::Endless(slots));
            }
            if slots == ahead {
                return Ok(Step::Incomplete);
            }
            let descriptor = Transmitted::read(&words[self.table.after(self.next, slots) as usize]);
            slots += 1;
            match descriptor.kind() {
                Kind::Legacy | Kind::Data => {
                    last = descriptor;
                    add(&mut gather, descriptor)?;
                }
                Kind::Context => self.contexts.set(descriptor),
                Kind::Unknown => {}
            }
        }
        let asks = FrameRequest { first, last, contexts: &self.contexts, settings };
        match asks.push(gather, batch) {
            None => return Ok(Step::Wait),
            Some(Pushed::Whole) => {}
            Some(Pushed::Cut { failed }) => {
                self.segmented += 1;
                self.failed += u64::from(failed);
            }
        }
        Ok(Step::Took { slots, pieces })
    }

    /// Completes the descriptors of the last collect.
    ///
    /// # Errors
    /// The ring cannot be written.
    #[inline]
    pub fn release(&mut self, writable: &GuestMemory) -> Result<Completed, RingFault> {
        let descriptors = self.table.ahead(self.head, self.next);
        let mut completed = Completed { descriptors, empty: self.next == self.tail, ..Completed::default() };
        for mark in &self.marks[..std::mem::take(&mut self.marked)] {
            mark.count(&mut completed.traffic);
        }
        (completed.segmented, completed.failed) =
            (std::mem::take(&mut self.segmented), std::mem::take(&mut self.failed));
        if descriptors == 0 {
            // Lost descriptors read as zeroes, which make no frame.
            return if writable.is_lost() { Err(RingFault::MemoryLost) } else { Ok(completed) };
        }
        let words = self.table.words(writable)?;
        let (mut any, mut all) = (0, IDE);
        let mut report = |words: &[Words]| {
            for [_, word] in words {
                let before = u64::from_le(word.load(Ordering::Relaxed));
                if before & RS != 0 {
                    word.store((before | TX_DONE).to_le(), Ordering::Release);
                    (any, all) = (RS, all & before);
                }
            }
        };
        let (from, to) = (self.head as usize, self.next as usize);
        if to > from {
            report(&words[from..to]);
        } else {
            report(&words[from..]);
            report(&words[..to]);
        }
        (completed.reported, completed.delay) = (any != 0, any != 0 && all != 0);
        self.head = self.next;
        self.note_position();
        if writable.is_lost() { Err(RingFault::MemoryLost) } else { Ok(completed) }
    }

    /// Takes up to `most` frames without reading them, and drops them. The next release completes their descriptors.
    ///
    /// # Errors
    /// The ring is malformed.
    pub fn discard(
        &mut self,
        readable: &GuestMemory,
        tail: u32,
        most: usize,
        discarded: &mut Discarded,
    ) -> Result<(), RingFault> {
        if !self.pending(tail) {
            return Ok(());
        }
        let words = self.begin(readable, tail)?;
        let (mut frames, mut steps) = (0, 0);
        let (mut at, mut slots, mut bytes) = (self.next, 0, 0);
        while at != tail && frames < most && steps < MOST_STEPS {
            let descriptor = Transmitted::read(&words[at as usize]);
            (at, slots, steps) = (self.table.after(at, 1), slots + 1, steps + 1);
            match descriptor.kind() {
                kind @ (Kind::Context | Kind::Unknown) => {
                    if kind == Kind::Context {
                        self.contexts.set(descriptor);
                    }
                    if slots == 1 {
                        (self.next, slots) = (at, 0);
                    }
                }
                Kind::Legacy | Kind::Data => {
                    bytes += u64::from(descriptor.len());
                    if descriptor.has(EOP) {
                        frames += usize::from(bytes > 0);
                        discarded.frames += u64::from(bytes > 0);
                        // The client chooses this length, and it goes into counters. No frame is longer than
                        // `MAX_FRAME`.
                        discarded.bytes += if bytes <= MAX_FRAME as u64 { bytes } else { 0 };
                        (self.next, slots, bytes) = (at, 0, 0);
                    } else if slots >= LONGEST_FRAME || slots + 1 >= self.table.count() {
                        // Lost pages read as zeroes, which can look like any other fault.
                        return Err(if readable.is_lost() { RingFault::MemoryLost } else { RingFault::Endless(slots) });
                    }
                }
            }
        }
        self.incomplete = at == tail && slots > 0;
        self.note();
        Ok(())
    }
}
