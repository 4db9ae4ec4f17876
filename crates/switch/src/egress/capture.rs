//! Frames shown to captures.
//!
//! A port without captures costs one test per batch as a source and one as a destination. Each capture costs a copy of
//! each frame. A reader that is too slow loses frames, but does not delay the switch.

use std::sync::Arc;

use crate::batch::Frames;
use crate::frame::DropReason;
use crate::port::{Counters, FrameDirection, Output, OutputCapabilities, PortFault, Tap, TappedFrame};

/// An output with captures. They see each frame, and whether it was delivered or dropped.
pub(super) struct Captured<'a> {
    pub(super) output: &'a mut dyn Output,
    pub(super) taps: &'a [Arc<dyn Tap>],
}

impl Output for Captured<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        self.output.capabilities()
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        self.output.queues(frames)
    }

    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        self.output.room(frames)
    }

    fn buffer(&mut self) -> usize {
        self.output.buffer()
    }

    #[cold]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        frames.all().start_recording_losses();
        let result = if self.output.capabilities().names_losses {
            self.output.deliver(frames.clone(), counters)
        } else {
            self.deliver_singly(frames.clone(), counters)
        };
        for tap in self.taps {
            tap.see(&mut frames.clone().map(|frame| TappedFrame {
                frame,
                way: FrameDirection::Out,
                dropped: frame.loss(),
            }));
        }
        frames.all().stop_recording_losses();
        result
    }
}

impl Captured<'_> {
    /// Delivers frames one at a time to an output that counts dropped frames but does not tell which ones it dropped.
    fn deliver_singly(&mut self, mut frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let (mut lost, mut result) = (counters.lost_out(), Ok(()));
        while let Some(one) = frames.next_alone() {
            let given = counters.out_frames();
            result = result.and(self.output.deliver(one.clone(), counters));
            if counters.out_frames() == given {
                let reason = counters.lost_since(&mut lost).unwrap_or(DropReason::ReceiverDown);
                one.for_each(|frame| frame.lose(reason));
            }
        }
        result
    }
}
