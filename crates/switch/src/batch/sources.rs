//! Frames whose source addresses are learned when they leave their sender's ring.

use super::storage::Batch;
use crate::frame::Mac;

impl Batch<'_> {
    /// Notes the frames that were not rejected, the first of each run with equal addresses, for [`Batch::take_sources`].
    #[cold]
    pub(crate) fn note_sources(&mut self, has_vlans: bool) {
        let mut sources = self.take_sources();
        sources.clear();
        let mut last = None;
        for index in (0..self.len()).filter(|&index| !self.is_rejected(index)) {
            let key = (Mac::both(self.head(index)), if has_vlans { self.class(index).vlan() } else { 0 });
            if last != Some(key) {
                sources.push(index as u16);
                last = Some(key);
            }
        }
        self.keep_sources(sources);
    }

    /// The indices of the noted frames, which may be beyond the batch by now. They are noted no longer.
    pub(crate) fn take_sources(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.parts.sources)
    }

    /// Gives the memory back.
    pub(crate) fn keep_sources(&mut self, sources: Vec<u16>) {
        self.parts.sources = sources;
    }
}
