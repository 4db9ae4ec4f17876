//! The results of a delivery.

use ringway_switch::Frame;

use crate::rings::settings::ReceiveSettings;
use crate::rings::traffic::Traffic;

/// Counts the results of one delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames delivered to the driver, with padding and tags.
    pub traffic: Traffic,
    /// Bytes of the frames as they arrived.
    pub bytes: u64,
    /// Frames that wait for descriptors.
    pub held: u64,
    /// Bytes of the frames that wait for descriptors.
    pub held_bytes: u64,
    /// Frames that did not pass the receive filters.
    pub filtered: u64,
    /// Frames lost because there were no descriptors.
    pub full: u64,
    /// Frames longer than allowed.
    pub long: u64,
    /// True if the number of free descriptors fell to the threshold of [`ReceiveSettings::low`].
    pub low: bool,
}

impl Received {
    /// Returns true if a frame passes the filters and is not too long. Otherwise counts the reason.
    pub fn judge(&mut self, frame: &Frame<'_, '_>, settings: &ReceiveSettings) -> bool {
        let wanted = settings.filters.passes(&frame.head().0, frame.len());
        let fits = frame.len() <= settings.longest;
        self.filtered += u64::from(!wanted);
        self.long += u64::from(wanted && !fits);
        wanted && fits
    }

    /// Skips and counts frames that do not pass the filters, up to the first that does.
    #[inline(always)]
    pub(super) fn skip_unwanted<'b, 'm: 'b>(
        &mut self,
        frames: &mut (impl Iterator<Item = Frame<'b, 'm>> + Clone),
        settings: &ReceiveSettings,
    ) {
        while frames.clone().next().is_some_and(|frame| !settings.filters.passes(&frame.head().0, frame.len())) {
            frames.next();
            self.filtered += 1;
        }
    }

    /// Adds the results of another delivery.
    pub fn merge(&mut self, other: &Received) {
        self.traffic.merge(&other.traffic);
        self.bytes += other.bytes;
        self.held += other.held;
        self.held_bytes += other.held_bytes;
        self.filtered += other.filtered;
        self.full += other.full;
        self.long += other.long;
        self.low |= other.low;
    }
}
