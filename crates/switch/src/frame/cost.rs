//! What frames cost.

use std::iter::Sum;
use std::ops::AddAssign;

use crate::port::WaitingPlace;

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
