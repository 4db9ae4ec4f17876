//! Captures and mirror ports, which are shown the frames of a port.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::batch::{Batch, Frame};
use crate::frame::DropReason;

/// The direction of a frame at the port where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// From the port's client into the switch.
    In,
    /// From the switch to the port's client.
    Out,
}

/// A frame as a capture sees it. The head is the private copy that was checked and delivered. The rest is read from the
/// sender's memory a second time, so that a sender that changes it meanwhile can make the capture differ from the frame
/// delivered.
#[derive(Clone, Copy, Debug)]
pub struct TappedFrame<'b, 'm> {
    /// The frame. In direction [`FrameDirection::Out`], it is the frame as delivered: software did the offloads that the port does
    /// not accept.
    pub frame: Frame<'b, 'm>,
    /// The direction of the frame.
    pub way: FrameDirection,
    /// Why the frame was dropped, if it was.
    pub dropped: Option<DropReason>,
}

/// A capture: sees the frames of a port, including the dropped ones.
pub trait Tap: Send + Sync {
    /// Sees frames of one batch, in order. Several pollers may call this at the same time, while they have frames to
    /// move: it must neither block nor allocate.
    fn see<'b, 'm: 'b>(&self, frames: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>);

    /// Returns true if the capture needs the frames that a port sends beyond its limit. Otherwise these frames are
    /// dropped unread.
    fn sees_refused(&self) -> bool {
        false
    }

    /// Wakes the reader of the capture if it waits for frames. Called after all stores of a pass are published and
    /// fenced.
    fn ring(&self);
}

/// The captures and mirrors of a port, and whether the port is itself a mirror.
#[derive(Clone, Default)]
pub struct Watch {
    /// Captures that see the frames that the port sends and receives.
    pub taps: Vec<Arc<dyn Tap>>,
    /// Mirror ports that get a copy of every frame taken from the port, including dropped frames.
    pub mirrors_in: Vec<u16>,
    /// Mirror ports that get a copy of every frame sent to the port, including frames that the port has no room for.
    pub mirrors_out: Vec<u16>,
    /// True if the port is a mirror: it gets copies and no other frames, and frames that it sends are dropped.
    pub is_mirror: bool,
}

impl Watch {
    /// Returns true if a capture needs the frames that the port sends beyond its limit.
    #[cold]
    pub(crate) fn sees_refused(&self) -> bool {
        self.taps.iter().any(|tap| tap.sees_refused())
    }

    /// Shows the captures the frames of the batch from index `first` on. The port sent them beyond its limit.
    #[cold]
    pub(crate) fn show_refused_frames(&self, batch: &Batch<'_>, first: usize) {
        let dropped = Some(DropReason::RateLimited);
        for tap in self.taps.iter().filter(|tap| tap.sees_refused()) {
            let frames = (first..batch.len()).map(|index| batch.frame(index));
            tap.see(&mut frames.map(|frame| TappedFrame { frame, way: FrameDirection::In, dropped }));
        }
    }

    /// Shows the captures frames that were dropped before the port got them.
    #[cold]
    pub(crate) fn lose<'b, 'm: 'b>(&self, frames: impl Iterator<Item = Frame<'b, 'm>> + Clone, reason: DropReason) {
        for tap in &self.taps {
            tap.see(&mut frames.clone().map(|frame| TappedFrame {
                frame,
                way: FrameDirection::Out,
                dropped: Some(reason),
            }));
        }
        // The readers are woken here, because the end of a pass wakes only the readers at ports that got frames.
        fence(Ordering::SeqCst);
        self.ring();
    }

    /// Wakes the readers of this port's captures.
    #[cold]
    pub(crate) fn ring(&self) {
        self.taps.iter().for_each(|tap| tap.ring());
    }
}
