//! Who is shown a port's frames: captures and mirror ports.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::batch::{Batch, Frame};
use crate::frame::DropReason;

/// Which way a frame went at the port where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the port's client into the switch.
    In,
    /// From the switch to the port's client.
    Out,
}

/// A frame as a watcher sees it: the head is what was judged and delivered; the rest is read from the sender's memory once
/// more, and a sender that changes it meanwhile shows something else than it sent.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'b, 'm> {
    /// The frame; out, as it was delivered: finished for a port that does not accept its offload.
    pub frame: Frame<'b, 'm>,
    /// Which way it went.
    pub way: Way,
    /// Why it went no further.
    pub dropped: Option<DropReason>,
}

/// Is shown the frames of a port, those that were lost included.
pub trait Tap: Send + Sync {
    /// Sees frames of one batch, in order. Called by pollers in the midst of their work, by several at the same time:
    /// must neither wait nor allocate.
    fn see<'b, 'm: 'b>(&self, frames: &mut dyn Iterator<Item = Seen<'b, 'm>>);

    /// Whether it wants to see what a port sends beyond its limit, which is otherwise given back without being read.
    fn sees_refused(&self) -> bool {
        false
    }

    /// Wakes whoever waits for what was seen. Called after everything of a pass is published and fenced.
    fn ring(&self);
}

/// Who watches a port, and whether it is itself a watcher.
#[derive(Clone, Default)]
pub struct Watch {
    /// Those that see what the port sends and is given.
    pub taps: Vec<Arc<dyn Tap>>,
    /// Ports that are given a copy of every frame taken from the port, whatever becomes of it.
    pub mirrors_in: Vec<u16>,
    /// Ports that are given a copy of every frame sent to the port, also of those that it has no room for.
    pub mirrors_out: Vec<u16>,
    /// The port is a mirror: it is given copies, and nothing else; what it sends is dropped.
    pub is_mirror: bool,
}

impl Watch {
    /// Whether somebody wants to see what the port sends beyond its limit.
    #[cold]
    pub(crate) fn sees_refused(&self) -> bool {
        self.taps.iter().any(|tap| tap.sees_refused())
    }

    /// Shows the taps the frames of the batch from `first` on, which the port sent beyond its limit.
    #[cold]
    pub(crate) fn show_refused(&self, batch: &Batch<'_>, first: usize) {
        let dropped = Some(DropReason::RateLimited);
        for tap in self.taps.iter().filter(|tap| tap.sees_refused()) {
            let frames = (first..batch.len()).map(|index| batch.frame(index));
            tap.see(&mut frames.map(|frame| Seen { frame, way: Way::In, dropped }));
        }
    }

    /// Shows the taps frames that the port is not given.
    #[cold]
    pub(crate) fn lose<'b, 'm: 'b>(&self, frames: impl Iterator<Item = Frame<'b, 'm>> + Clone, reason: DropReason) {
        for tap in &self.taps {
            tap.see(&mut frames.clone().map(|frame| Seen { frame, way: Way::Out, dropped: Some(reason) }));
        }
        // The port may not be given anything in this pass, and so not be one of those whose readers are woken at its end.
        fence(Ordering::SeqCst);
        self.ring();
    }

    /// Wakes the readers of what was seen at this port.
    #[cold]
    pub(crate) fn ring(&self) {
        self.taps.iter().for_each(|tap| tap.ring());
    }
}
