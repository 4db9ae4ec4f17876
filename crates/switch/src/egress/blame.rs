//! Accounting after a panic: the frames that no port counted, and the ports that got frames but no call.

use super::deliver::Delivery;
use crate::topology::Member;

/// Frames of a batch that no port counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Frames of the port that was being given frames.
    pub(crate) of_filled: u64,
    /// Frames that other ports had not been given yet. A flooded frame counts once, even if some ports had already been
    /// given it.
    pub(crate) of_others: u64,
}

impl Delivery {
    /// Number of frames of the batch that no port counted. `filled` is the port that was being given frames, if any.
    #[cold]
    pub(crate) fn lost(&self, filled: Option<&Member>) -> Lost {
        if self.delivering == 0 {
            return Lost::default();
        }
        let progress = &self.transmitter.progress;
        let of_filled = filled.map_or(0, |to| progress.missing(to.port.counters()));
        let (used, filled) = (self.lists.used(), filled.map(|to| to.owner.index()));
        let begun = self.transmitter.served.iter().copied().chain(filled);
        let begun = begun.filter_map(|port| used.iter().position(|&used| used == port));
        let of_others = match (used.is_empty(), self.lists.has_flood()) {
            // All frames have one destination, or they are not sorted yet.
            (true, false) if !progress.is_begun() => self.delivering as u64,
            (true, false) => 0,
            _ => {
                let remaining = &used[begun.max().map_or(0, |place| place + 1).min(used.len())..];
                let own = remaining.iter().map(|&port| self.lists.count(port)).sum::<usize>();
                (own + self.lists.flooded().count()) as u64
            }
        };
        Lost { of_filled, of_others }
    }

    /// Returns true if a batch was being delivered.
    #[cold]
    pub(crate) fn is_delivering(&self) -> bool {
        self.delivering > 0
    }

    /// Number of frames taken from a port's backlog that the port neither was given nor counted.
    #[cold]
    pub(crate) fn lost_of_backlog(&self, to: &Member) -> u64 {
        self.transmitter.backlog.missing(to.port.counters())
    }

    /// Takes the list of the ports, including mirrors, that were given frames in this pass.
    #[cold]
    pub(crate) fn take_served(&mut self) -> Vec<u16> {
        self.transmitter.serve_mirrors();
        std::mem::take(&mut self.transmitter.served)
    }
}
