//! What frames cost.

use std::iter::Sum;
use std::ops::AddAssign;

/// Where frames wait for a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitingPlace {
    /// In the client's ring.
    #[default]
    Ring,
    /// In the port's own memory, as many bytes as this. The client sends on, and what finds no room is lost.
    Memory(usize),
    /// In the client: its connection is full soon, and it stops. Such a client may send everything again that follows a lost frame, at the
    /// same rate (passt), so that none of its frames should be dropped where it can wait.
    Connection,
}

/// What frames cost against a limit: their number and bytes on a wire. A frame that needs segmentation counts as its
/// segments, each with its own headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
}

impl Cost {
    /// The cost of a frame of `len` bytes that needs no segmentation.
    #[inline]
    pub(crate) fn of_one(len: usize) -> Cost {
        Cost { bytes: len as u64, frames: 1 }
    }

    /// Of frames that a limit lets wait: how many may wait at this place.
    pub(crate) fn at(self, place: WaitingPlace) -> Cost {
        match place {
            WaitingPlace::Ring | WaitingPlace::Connection => self,
            WaitingPlace::Memory(most) => Cost { bytes: self.bytes.min(most as u64), ..self },
        }
    }
}

impl AddAssign for Cost {
    #[inline]
    fn add_assign(&mut self, other: Cost) {
        self.bytes += other.bytes;
        self.frames += other.frames;
    }
}

impl Sum for Cost {
    #[inline]
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), |mut sum, cost| {
            sum += cost;
            sum
        })
    }
}
