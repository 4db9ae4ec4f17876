//! Frames to the peer of a stream port.

use std::sync::Arc;

use ringway_switch::{Counters, DropReason, Frames, Output, PortFault};

use super::connection::SharedConnection;
use super::sending::{Late, Tally};

pub struct StreamOutput {
    connection: Arc<SharedConnection>,
}

impl StreamOutput {
    pub fn new(connection: Arc<SharedConnection>) -> StreamOutput {
        StreamOutput { connection }
    }
}

impl Output for StreamOutput {
    fn deliver(&mut self, mut frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut sending = self.connection.sending.lock();
        let mut tally = Tally::default();
        if let Err(ended) = sending.send(&mut frames, &mut tally) {
            sending.end();
            self.connection.end(ended);
        }
        if sending.begins_waiting() {
            self.connection.wake_thread();
        }
        let reason = if sending.is_open() { DropReason::ReceiverFull } else { DropReason::ReceiverDown };
        counters.add_out(tally.frames, tally.bytes);
        counters.drop_out(reason, frames.count() as u64);
        if sending.too_long > 0 {
            counters.drop_out(DropReason::ReceiverTooSmall, std::mem::take(&mut sending.too_long));
        }
        count(&sending.take_late(), counters);
        Ok(())
    }

    fn count_late(&mut self, counters: &Counters) {
        count(&self.connection.sending.lock().take_late(), counters);
    }
}

/// Counts frames that an earlier delivery left sent in part.
fn count(late: &Late, counters: &Counters) {
    if *late != Late::default() {
        counters.add_out(late.sent.frames, late.sent.bytes);
        counters.drop_out(DropReason::ReceiverDown, late.lost);
    }
}
