//! Frames to the peer of a stream port.

use std::sync::Arc;

use ringway_switch::{Counters, DropReason, Frames, Output, PortFault};

use super::line::Line;
use super::sending::Tally;

pub struct StreamOutput {
    line: Arc<Line>,
}

impl StreamOutput {
    pub fn new(line: Arc<Line>) -> StreamOutput {
        StreamOutput { line }
    }
}

impl Output for StreamOutput {
    fn deliver(&mut self, mut frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut sending = self.line.sending.lock();
        let mut tally = Tally::default();
        if let Err(ended) = sending.send(&mut frames, &mut tally) {
            sending.end();
            self.line.end(ended);
        }
        if sending.begins_to_wait() {
            self.line.tell();
        }
        let reason = if sending.is_open() { DropReason::ReceiverFull } else { DropReason::ReceiverDown };
        counters.add_out(tally.frames, tally.bytes);
        counters.drop_out(reason, frames.count() as u64);
        Ok(())
    }
}
