//! Buffers that slow peers keep while others lack some are taken back: such connections end.
//!
//! A peer is slow if it leaves all that was sent to it at some time unacknowledged, or a gap in what it sends unfilled, in part, for
//! [`PATIENCE`]. Alone that is no harm, and costs nothing. But a station that has more than an equal part of the buffers loses its
//! slow connections while another one is refused a buffer that has less than that.
//!
//! The memory of long messages is for all stations in equal parts, however fast their messages come. A station that lacks some gets its part
//! at once, from stations that have more than that: their oldest messages end. Messages that come slower than [`LEAST_RATE`] end, too, when
//! no station has more than its part, or when the station itself lacks memory. An equal part is never less than one message, so that only
//! a slow one ends if its station has no other.

use super::core::Core;
use super::event::Reason;
use super::lack::Lack;
use super::peer::Peer;
use super::stations::Use;
use crate::connection::{Nanos, SECOND, is_before};

/// How often connections are looked at while a station lacks buffers.
const LOOK: Nanos = SECOND;
const PATIENCE: Nanos = 30 * SECOND;
/// Bytes per second of a long message that is not slow, after [`PATIENCE`].
const LEAST_RATE: u64 = 16 << 10;

/// Returns true if a peer that has come to `reached` is late at its mark. After that the mark is at `end`.
fn is_late(mark: &mut Option<(u32, Nanos)>, reached: u32, end: u32, now: Nanos) -> bool {
    match *mark {
        Some((to, since)) if is_before(reached, to) => now.saturating_sub(since) >= PATIENCE,
        _ => {
            *mark = Some((end, now));
            false
        }
    }
}

impl Peer {
    /// Returns true if the peer is slow to acknowledge what was sent. What waits for a link that is full is not its fault.
    fn is_slow_to_acknowledge(&mut self, is_full: bool, now: Nanos) -> bool {
        let (sender, mark) = (&self.sender, &mut self.marks.sent);
        if sender.queued() == 0 || is_full && self.is_in_sending {
            *mark = None;
        }
        sender.queued() > 0 && is_late(mark, sender.oldest(), sender.end(), now)
    }

    /// Returns true if the peer's long message comes slowly. What waits for the program is not its fault.
    fn is_slow_to_complete(&self, now: Nanos) -> bool {
        let pause = if self.is_paused { now.saturating_sub(self.paused_since) } else { 0 };
        let time = PATIENCE + self.assembly.len() as u64 * SECOND / LEAST_RATE + self.paused + pause;
        self.fragments_left.is_some() && now.saturating_sub(self.assembled_since) >= time
    }

    /// Returns true if the peer is slow to fill gaps. What waits for the program is not its fault.
    fn is_slow_to_fill(&mut self, now: Nanos) -> bool {
        let (receiver, mark) = (&self.receiver, &mut self.marks.kept);
        let has_gap = !receiver.is_told_briefly() && !self.is_paused;
        if !has_gap {
            *mark = None;
        }
        has_gap && is_late(mark, receiver.next(), receiver.end(), now)
    }
}

impl Core {
    /// A station is refused a buffer.
    #[cold]
    pub fn lacks(&mut self, station: u32, used: Use) {
        let least = &mut self.lack.least[used as usize];
        *least = (*least).min(self.pool.stations.held(station, used));
        self.lack.look.get_or_insert(self.now.max(self.lack.looked.saturating_add(LOOK)));
    }

    /// Ends slow connections of stations that have much while others have little, if it is time to look. `is_full`: the link is.
    #[inline]
    pub fn take_back_due(&mut self, is_full: bool) {
        if self.lack.look.is_some_and(|at| at <= self.now) {
            self.take_back(is_full);
        }
    }

    #[cold]
    fn take_back(&mut self, is_full: bool) {
        let (now, parts) = (self.now, [Use::Send, Use::Keep].map(|used| self.pool.part(used)));
        // Who waits is refused nothing more, and lacks buffers all the same.
        let waiting: Vec<u32> = self.lists.without_buffers.iter().copied().collect();
        for id in &waiting {
            if let Some(station) = self.table.get(*id).map(|peer| peer.far.station) {
                self.lacks(station, Use::Send);
            }
        }
        let look = (!waiting.is_empty()).then(|| now.saturating_add(LOOK));
        let lack = std::mem::replace(&mut self.lack, Lack { looked: now, look, ..Lack::default() });
        let (table, stations) = (&mut self.table, &self.pool.stations);
        let slow = table.all_mut().filter_map(|peer| {
            let has_much = |used: Use| {
                let part = parts[used as usize];
                lack.least[used as usize] < part && stations.held(peer.far.station, used) > part
            };
            let (sends, keeps) = (has_much(Use::Send), has_much(Use::Keep));
            (sends && peer.is_slow_to_acknowledge(is_full, now) || keeps && peer.is_slow_to_fill(now))
                .then_some(peer.id)
        });
        let slow: Vec<u32> = slow.collect();
        slow.into_iter().for_each(|id| self.reset(id, Reason::NoAnswer));
    }

    /// Returns true if a connection's long message may have so many bytes more, if need be after others have ended.
    #[inline]
    pub fn makes_room_for(&mut self, id: u32, station: u32, bytes: usize) -> bool {
        self.pool.stations.may_be_longer(station, bytes) || {
            self.take_back_long(id, station, bytes);
            self.pool.stations.may_be_longer(station, bytes)
        }
    }

    /// Ends connections whose long messages keep memory that another one lacks.
    #[cold]
    fn take_back_long(&mut self, id: u32, station: u32, bytes: usize) {
        let is_its_part = self.pool.stations.is_within_part(station, bytes);
        while is_its_part
            && !self.pool.stations.may_be_longer(station, bytes)
            && let Some(oldest) = self.pool.stations.oldest_beyond_part(station)
        {
            self.reset(oldest, Reason::NoAnswer);
        }
        let (now, next) = (self.now, &mut self.lack.look_for_long[usize::from(is_its_part)]);
        if self.pool.stations.may_be_longer(station, bytes) || now < *next {
            return;
        }
        *next = now.saturating_add(LOOK);
        let stations = &self.pool.stations;
        let may_end = |peer: &&Peer| {
            let other = peer.far.station;
            let keeps_it = is_its_part || other == station || stations.has_much_long(other, station);
            peer.id != id && keeps_it && peer.is_slow_to_complete(now)
        };
        let slow: Vec<u32> = self.table.all().filter(may_end).map(|peer| peer.id).collect();
        slow.into_iter().for_each(|id| self.reset(id, Reason::NoAnswer));
    }
}
