//! A round: one visit to each active port, and a poll of a few parked ones.

use super::lists::Schedule;

/// Parked ports that a round polls.
pub(super) const POLLS_PER_ROUND: usize = 8;

/// What a visit to an active port found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visit {
    /// Frames that were moved.
    pub(crate) frames: u64,
    /// The port may have more frames.
    pub(crate) more: bool,
    /// What the port has may not pass before this time: the port waits.
    pub(crate) until: Option<u64>,
}

impl Schedule {
    /// Begins a round. The poller visits each port that [`Schedule::next_active`] returns and reports each visit to
    /// [`Schedule::visited`]. `place` is 0 at first and belongs to these two. Then the poller polls each port
    /// that [`Schedule::next_parked`] returns, [`Schedule::polls`] times.
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

    /// The port that [`Schedule::next_active`] returned last was visited. Returns whether that was work: frames that a limit holds
    /// back keep no poller awake.
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

    /// Whether the last round skipped a resting port.
    #[inline]
    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// How many parked ports the round polls at most.
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

    /// The port that [`Schedule::next_parked`] returned last has no frames: it is polled again when all other parked ports were.
    #[inline]
    pub(crate) fn keep_parked(&mut self) {
        self.next_parked += 1;
    }
}
