//! A round: a visit to each active port, and a poll of a few parked ports.

use super::lists::Schedule;

/// Parked ports that a round polls.
pub(super) const POLLS_PER_ROUND: usize = 8;

/// The result of a visit to an active port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visit {
    /// Frames that were moved.
    pub(crate) frames: u64,
    /// True if the port may have more frames.
    pub(crate) more: bool,
    /// The port's frames may not pass before this time: the port waits.
    pub(crate) until: Option<u64>,
}

impl Schedule {
    /// Begins a round. The poller visits each port that [`Schedule::next_active`] returns and reports each visit to
    /// [`Schedule::visited`]. `place` starts at 0, and only these two change it. Then the poller polls each port that
    /// [`Schedule::next_parked`] returns, [`Schedule::polls`] times.
    #[inline]
    pub(crate) fn begin_round(&mut self) {
        self.is_resting = false;
    }

    /// The next port that the round visits.
    #[inline]
    pub(crate) fn next_active(&mut self, place: &mut usize, now: u64) -> Option<usize> {
        while let Some(turn) = self.active.get(*place) {
            if now >= turn.rests_until {
                return Some(turn.slot);
            }
            self.is_resting = true;
            *place += 1;
        }
        None
    }

    /// Notes a visit to the port that [`Schedule::next_active`] returned last. Returns true if the visit counts as
    /// work. Frames that a limit holds back do not: they keep no poller awake.
    #[inline]
    pub(crate) fn visited(&mut self, place: &mut usize, slot: usize, now: u64, visit: Visit) -> bool {
        let port = &mut self.ports[slot];
        if let Some(until) = visit.until {
            self.leave_active(slot);
            self.enter_waiting(slot, until);
            return false;
        }
        if port.is_paced {
            self.active[*place].rests_until = port.pacing.visited(now, visit.frames, visit.more);
        }
        if visit.frames > 0 {
            port.empty_visits = 0;
            *place += 1;
            return true;
        }
        port.empty_visits += 1;
        if port.empty_visits > port.park_after {
            self.leave_active(slot);
            self.enter_parked(slot);
        } else {
            *place += 1;
        }
        false
    }

    /// Returns true if the last round skipped a resting port.
    #[inline]
    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// Most parked ports that the round polls.
    #[inline]
    pub(crate) fn polls(&self) -> usize {
        POLLS_PER_ROUND.min(self.parked.len())
    }

    /// The next parked port that the round polls. The poller then calls [`Schedule::keep_parked`] or [`Schedule::unpark`]
    /// or [`Schedule::wait`] for it.
    #[inline]
    pub(crate) fn next_parked(&mut self) -> Option<usize> {
        if self.next_parked >= self.parked.len() {
            self.next_parked = 0;
        }
        self.parked.get(self.next_parked).copied()
    }

    /// Notes that the port that [`Schedule::next_parked`] returned last has no frames. It is polled again after all
    /// other parked ports.
    #[inline]
    pub(crate) fn keep_parked(&mut self) {
        self.next_parked += 1;
    }
}
