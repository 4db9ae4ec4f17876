//! The port that is being given frames.

use std::sync::Arc;

use super::progress::Progress;
use crate::batch::Frames;
use crate::frame::{DropReason, Sender};
use crate::port::{Pauses, Tap, Watch};
use crate::topology::{Context, Member};

/// The port that is being given frames, and the data that the wrappers around its output share.
#[derive(Clone, Copy)]
pub(super) struct Receiver<'a> {
    pub(super) to: &'a Member,
    context: &'a Context<'a>,
    /// The captures and mirrors of the port.
    pub(super) watch: Option<&'a Watch>,
    progress: &'a Progress,
}

impl<'a> Receiver<'a> {
    #[inline(always)]
    pub(super) fn new(
        to: &'a Member,
        watch: Option<&'a Watch>,
        context: &'a Context<'a>,
        progress: &'a Progress,
    ) -> Receiver<'a> {
        Receiver { to, watch, context, progress }
    }

    /// The sending port.
    #[inline(always)]
    pub(super) fn sender(&self) -> Sender {
        self.context.from.sender()
    }

    /// When frames from the sending port are looked at for segments that can be joined.
    #[inline(always)]
    pub(super) fn pauses(&self) -> &'a Pauses {
        self.context.from.port.pauses()
    }

    /// The time of the pass, in nanoseconds.
    #[inline(always)]
    pub(super) fn now(&self) -> u64 {
        self.context.now.nanoseconds
    }

    /// The captures that see the frames given to the port. `None` if there are none.
    #[inline(always)]
    pub(super) fn taps(&self) -> Option<&'a [Arc<dyn Tap>]> {
        self.watch.map(|watch| &watch.taps[..]).filter(|taps| !taps.is_empty())
    }

    /// Counts frames that were appended to others.
    pub(super) fn count_joined(&self, frames: usize) {
        self.to.port.counters().add_coalesced(frames as u64);
        self.progress.join(frames);
    }

    /// Counts all frames except the first `given` as dropped, and shows them to the port's captures.
    #[cold]
    pub(super) fn refuse(&self, frames: &Frames<'_, '_>, given: usize, reason: DropReason) {
        let count = frames.len() - given;
        self.to.port.counters().drop_out_beside(reason, count as u64);
        self.progress.refuse(count);
        if let Some(watch) = self.watch {
            watch.lose(frames.clone().skip(given), reason);
        }
    }
}
