//! Delivery of the frames in a detour's backlog, by the own thread of the port in quarantine.

use super::deliver::Delivery;
use super::offload::SoftwareOffload;
use crate::batch::{BatchStorage, Frames};
use crate::port::{Counters, Output, PortFault, Taken};

impl Delivery {
    /// Delivers the frames taken from the backlog to the port's output.
    pub(crate) fn deliver_backlog(
        &mut self,
        taken: &Taken,
        storage: BatchStorage,
        output: &mut dyn Output,
        counters: &Counters,
    ) -> (BatchStorage, Result<(), PortFault>) {
        self.transmitter.backlog.begin(taken.frames(), counters);
        let mut output = SoftwareOffload { output, scratch: &mut self.transmitter.scratch.offload };
        let (mut storage, mut result, mut next) = (storage, Ok(()), 0);
        // Frames after a failure are delivered as well, so that every frame is in a counter.
        while next < taken.frames() {
            let mut batch = storage.into_batch();
            next = taken.fill(next, self.all.len(), &mut batch);
            result = result.and(output.deliver(Frames::of(&batch, &self.all[..batch.len()]), counters));
            storage = batch.into_storage();
        }
        self.transmitter.backlog.end();
        (storage, result)
    }
}
