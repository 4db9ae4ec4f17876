//! A batch in front of a program, and what its verdicts become.
//!
//! A verdict is a proposal. What the built-in function checks of a frame's addresses and VLAN is checked here as well; what depends on both
//! ports is checked by delivery, as for every destination.

use std::hash::Hash;
use std::sync::Arc;

use super::verdict::{MAX_REASONS, MAX_SETS, Verdict};
use super::view::View;
use crate::batch::{Batch, Destination, Frame, PortSet};
use crate::forward::addresses::{admit, within};
use crate::frame::{Accepts, Class, DropReason, Gso, Mac, Owner};
use crate::poller_number::poller_number;
use crate::port::{Kept, Known, Scope};
use crate::topology::{Member, Switch};

/// Bytes of a verdict.
const WORD: usize = 4;

/// A frame as a program sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'b> {
    /// The private copy of its first bytes. Bytes beyond the frame are unspecified.
    pub head: &'b [u8; 128],
    /// Bytes of the whole frame.
    pub len: usize,
    /// Its VLAN; 0 in switches without VLANs.
    pub vlan: u16,
    /// What a receiver has to do: bit 0 checksum, bit 1 TCP over IPv4 to be segmented, bit 2 TCP over IPv6, bit 3 UDP to be segmented, bit
    /// 4 UDP to be fragmented, bit 5 the segments are in the UDP tunnel that the frame begins with.
    pub offload: u8,
    /// Bytes of payload in each segment; 0 without segmentation.
    pub segment: u16,
}

impl<'b> Seen<'b> {
    #[inline(always)]
    fn of(frame: &Frame<'b, '_>, vlan: u16) -> Seen<'b> {
        let (mut offload, mut segment) = (0, 0);
        if let Some(wanted) = frame.offload() {
            let kind = match wanted.gso {
                Gso::None => 0,
                Gso::Tcp4 => 2,
                Gso::Tcp6 => 4,
                Gso::UdpL4 => 8,
                Gso::Udp4Frag => 16,
            };
            (offload, segment) =
                (kind | u8::from(wanted.needs_csum) | u8::from(wanted.tunnel.is_some()) << 5, wanted.gso_size);
        }
        Seen { head: &frame.head().0, len: frame.len(), vlan, offload, segment }
    }

    /// All that the program sees, to be hashed.
    pub(super) fn all(self) -> impl Hash + use<'b> {
        (&self.head[..self.len.min(self.head.len())], self.len, self.vlan, self.offload, self.segment)
    }

    /// The priority of its VLAN tag, 0 to 7; 0 without a tag.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> u8 {
        if Class::has_tag(self.head) { self.head[14] >> 5 } else { 0 }
    }
}

/// Word, VLAN and addresses of a frame, and its destination.
type Last = Option<((u32, u16, (u64, u32)), Destination)>;

/// A word of a program that is no verdict, or names a port or set that never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadVerdict {
    /// The word.
    pub word: u32,
}

/// A batch in front of a program: the frames that policy has admitted.
#[derive(Debug)]
pub struct Judging<'j, 'm> {
    batch: &'j mut Batch<'m>,
    from: &'j Member,
    switch: &'j Switch,
    view: &'j Arc<View>,
    now: u32,
    /// When the program began, while its time is measured.
    began: Option<u64>,
    count: usize,
    /// True if the program does not judge all frames of the batch.
    has_gaps: bool,
    /// Its words are noted: some frames may have to wait.
    keeps: bool,
    /// The frames with known words have their destinations.
    is_recalled: bool,
    /// One destination is set for all frames.
    is_uniform: bool,
    /// Frames with a verdict so far.
    judged: usize,
    /// Some frame is the built-in function's.
    has_built_in: bool,
    /// Some frame has a destination from the program.
    has_settled: bool,
    /// Some frame is dropped.
    has_dropped: bool,
    drops: [u64; MAX_REASONS],
}

impl<'j, 'm> Judging<'j, 'm> {
    pub(super) fn new(
        batch: &'j mut Batch<'m>,
        from: &'j Member,
        switch: &'j Switch,
        view: &'j Arc<View>,
        now: u32,
    ) -> Judging<'j, 'm> {
        let count = batch.begin_settling();
        let has_gaps = count < batch.len();
        Judging {
            batch,
            from,
            switch,
            view,
            now,
            began: None,
            count,
            has_gaps,
            keeps: switch.may_leave_behind(),
            is_recalled: false,
            is_uniform: false,
            judged: 0,
            has_built_in: false,
            has_settled: false,
            has_dropped: false,
            drops: [0; MAX_REASONS],
        }
    }

    /// Leaves out the frames that the program has judged before, which waited since. Called once for each batch, also for one without frames.
    #[inline]
    pub(super) fn recall(&mut self, program: &Arc<Known>) {
        if self.keeps
            && let Some(mut kept) = self.from.port.verdicts().lock()
            && kept.begin(Some(program), self.scope(), self.now)
        {
            self.take_out(&mut kept);
        }
    }

    fn scope(&self) -> Scope {
        Scope { view: self.view.version(), poller: poller_number() }
    }

    #[cold]
    fn take_out(&mut self, kept: &mut Kept) {
        let has_vlans = self.switch.has_vlans();
        let take = |batch: &Batch<'_>, index| kept.take(&seen(batch, index, has_vlans).all());
        self.count = self.batch.recall(take);
        self.has_gaps = self.count < self.batch.len();
    }

    /// Sets the destinations of the frames with known words. A word that is none any more drops its frame.
    #[cold]
    fn settle_known(&mut self, sets: &[Option<PortSet>]) {
        for place in 0..self.batch.known().len() {
            let (index, word) = self.batch.known()[place];
            let index = usize::from(index);
            if self.batch.is_rejected(index) {
                continue;
            }
            if self.settle(index, word, sets, &mut None).is_err() {
                self.batch.settle(index, Some(Destination::Drop(DropReason::ProgramFault)));
            }
        }
        // These were counted before.
        (self.drops, self.has_dropped) = ([0; MAX_REASONS], false);
        self.has_settled = true;
    }

    /// The switch's ports and addresses.
    #[inline]
    #[must_use]
    pub fn view(&self) -> &'j Arc<View> {
        self.view
    }

    /// The port that the frames came from.
    #[inline]
    #[must_use]
    pub fn from(&self) -> Owner {
        self.from.owner
    }

    /// The time in seconds.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Returns true if addresses may be learned from the frames.
    #[inline]
    #[must_use]
    pub fn may_learn(&self) -> bool {
        !self.batch.is_unlearned()
    }

    /// Number of frames.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no frames.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Shows `look` the frames from place `first` to before `end`, both at most [`Judging::len`], in order.
    #[inline(always)]
    pub fn each(&self, first: usize, end: usize, mut look: impl FnMut(Seen<'_>)) {
        if self.has_gaps || self.switch.has_vlans() || self.batch.needs() != Accepts::NOTHING {
            return self.each_by_place(first, end, look);
        }
        for (len, head) in self.batch.lengths_and_heads(first, end) {
            look(Seen { head, len, vlan: 0, offload: 0, segment: 0 });
        }
    }

    #[inline(never)]
    fn each_by_place(&self, first: usize, end: usize, mut look: impl FnMut(Seen<'_>)) {
        for place in first..end {
            let index = self.batch.accepted(place);
            look(seen(self.batch, index, self.switch.has_vlans()));
        }
    }

    /// Takes the verdicts of the next frames, 4 bytes each. `sets` are the program's sets of ports.
    ///
    /// # Errors
    /// A word is no verdict, or names a port or a set that never was. The batch then has no destinations.
    #[inline]
    pub fn decide(&mut self, words: &[u8], sets: &[Option<PortSet>]) -> Result<(), BadVerdict> {
        let (words, _) = words.as_chunks::<WORD>();
        let words = &words[..words.len().min(self.count - self.judged)];
        if self.keeps {
            self.note(words, sets);
        }
        let Some(word) = words.first().map(|word| u32::from_le_bytes(*word)) else { return Ok(()) };
        if !self.has_settled && are_all(words, 0) {
            self.judged += words.len();
            self.has_built_in = true;
            return Ok(());
        }
        if words.len() == self.batch.len() && are_all(words, word) {
            let destination = match Verdict::read(word) {
                None => return Err(BadVerdict { word }),
                Some(Verdict::Drop(reason)) => {
                    self.count_drops(reason, self.count as u64);
                    Some(Destination::Drop(DropReason::ProgramDropped))
                }
                Some(verdict @ (Verdict::Port(_) | Verdict::Flood))
                    if self.batch.has_one_header(self.switch.has_vlans()) =>
                {
                    Some(self.destination(0, verdict, word)?)
                }
                _ => None,
            };
            if let Some(destination) = destination {
                self.batch.settle_all(destination);
                (self.judged, self.is_uniform) = (self.count, true);
                return Ok(());
            }
        }
        self.decide_each(words, sets)
    }

    /// Notes words that may be needed again, and first settles what is known.
    #[inline(never)]
    fn note(&mut self, words: &[[u8; WORD]], sets: &[Option<PortSet>]) {
        if !self.is_recalled && !self.batch.known().is_empty() {
            self.settle_known(sets);
        }
        self.is_recalled = true;
        self.batch.note_words(words.iter().map(|word| u32::from_le_bytes(*word)));
    }

    #[inline(never)]
    fn decide_each(&mut self, words: &[[u8; WORD]], sets: &[Option<PortSet>]) -> Result<(), BadVerdict> {
        if !self.has_settled {
            // The frames before are all the built-in function's.
            for place in 0..self.judged {
                self.batch.settle(self.batch.accepted(place), None);
            }
            self.has_settled = true;
        }
        // Frames with the verdict and the addresses of the frame before have its destination.
        let mut last = None;
        for word in words {
            let index = self.batch.accepted(self.judged);
            self.judged += 1;
            self.settle(index, u32::from_le_bytes(*word), sets, &mut last)?;
        }
        Ok(())
    }

    /// Sets the destination of frame `index` by this word. `last`: word and addresses of the frame before, and its destination.
    #[inline(always)]
    fn settle(&mut self, index: usize, word: u32, sets: &[Option<PortSet>], last: &mut Last) -> Result<(), BadVerdict> {
        let Some(verdict) = Verdict::read(word) else { return Err(BadVerdict { word }) };
        match verdict {
            Verdict::BuiltIn => {
                self.has_built_in = true;
                self.batch.settle(index, None);
            }
            Verdict::Drop(reason) => {
                self.count_drops(reason, 1);
                self.batch.settle(index, Some(Destination::Drop(DropReason::ProgramDropped)));
            }
            Verdict::Port(_) | Verdict::Flood | Verdict::Ports(_) => {
                let key = (word, self.vlan(index), Mac::both(self.batch.head(index)));
                let destination = match *last {
                    Some((before, destination)) if before == key => destination,
                    _ => self.destination(index, verdict, word)?,
                };
                *last = Some((key, destination));
                self.batch.settle(index, Some(destination));
                if let Verdict::Ports(number) = verdict
                    && destination == Destination::Flood
                {
                    let Some(Some(set)) = sets.get(number) else { return Err(BadVerdict { word }) };
                    self.batch.narrow(index, number, set);
                }
            }
        }
        Ok(())
    }

    /// The destination of frame `index` by this verdict, or the reason of the policy that forbids it.
    fn destination(&self, index: usize, verdict: Verdict, word: u32) -> Result<Destination, BadVerdict> {
        let head = self.batch.head(index);
        let (source, destination) = (Mac::source(head), Mac::destination(head));
        let wanted = match verdict {
            Verdict::Port(owner) => match self.view.port(owner) {
                Some(port) if port.is_mirror => return Ok(Destination::Drop(DropReason::NoDestination)),
                Some(_) if owner == self.from.owner => return Ok(Destination::Drop(DropReason::SamePort)),
                Some(_) => Destination::Port(owner.index()),
                None if self.view.has_left(owner) => return Ok(Destination::Drop(DropReason::NoDestination)),
                None => return Err(BadVerdict { word }),
            },
            _ => Destination::Flood,
        };
        Ok(match self.permit(source, destination) {
            Err(reason) => Destination::Drop(reason),
            Ok(()) => match self.switch.domain() {
                Some(domain) => within(domain, self.vlan(index), wanted, self.from, self.switch),
                None => wanted,
            },
        })
    }

    #[inline]
    fn vlan(&self, index: usize) -> u16 {
        if self.switch.has_vlans() { self.batch.class(index).vlan() } else { 0 }
    }

    /// Checks the addresses of a frame as the built-in function does.
    fn permit(&self, source: Mac, destination: Mac) -> Result<(), DropReason> {
        if !source.is_station() && !self.from.any_source {
            return Err(DropReason::BadSource);
        }
        if let Some(domain) = self.switch.domain() {
            admit(domain, self.from, source, destination)?;
        }
        if destination.is_bridge_reserved() && !self.switch.flood_policy().reserved.contains(destination) {
            return Err(DropReason::BridgeReserved);
        }
        Ok(())
    }

    /// The program begins now. To be called when the program need not wait for anything any more: what it waited for is not the time of the
    /// port whose frames it judges.
    #[inline]
    pub fn begin(&mut self) {
        self.began = self.batch.program_now();
    }

    /// Notes the time that the program took since it began, while passes are examined.
    #[inline]
    pub(super) fn note_time(&mut self) {
        self.batch.add_program_time(self.began);
    }

    #[inline]
    fn count_drops(&mut self, reason: usize, frames: u64) {
        self.drops[reason] += frames;
        self.has_dropped = true;
    }

    /// The number of frames that the program drops, by reason. Empty if it drops none.
    #[inline]
    #[must_use]
    pub fn drops(&self) -> &[u64] {
        if self.has_dropped { &self.drops } else { &[] }
    }

    /// Ends the judging. `built_in` sets the destinations of the frames that the program leaves to it.
    #[inline]
    pub(super) fn end(mut self, built_in: impl FnOnce(&mut Batch<'m>)) {
        if self.is_uniform {
            return;
        }
        if self.has_settled {
            while self.judged < self.count {
                self.batch.settle(self.batch.accepted(self.judged), None);
                (self.judged, self.has_built_in) = (self.judged + 1, true);
            }
            self.batch.end_settling(self.has_built_in, built_in);
        } else {
            built_in(self.batch);
        }
    }
}

/// Frame `index` as a program sees it.
pub(super) fn seen<'b>(batch: &'b Batch<'_>, index: usize, has_vlans: bool) -> Seen<'b> {
    Seen::of(&batch.frame(index), if has_vlans { batch.class(index).vlan() } else { 0 })
}

/// Returns true if all words are this one. Looks at all of them, several at a time.
#[inline]
fn are_all(words: &[[u8; WORD]], one: u32) -> bool {
    words.iter().fold(0, |unlike, word| unlike | (u32::from_le_bytes(*word) ^ one)) == 0
}

const _: () = assert!(MAX_SETS <= u8::MAX as usize, "a frame's set is a byte");
