//! Frames for a port in quarantine: pollers leave them in the backlog of the port's detour.

use std::sync::atomic::{Ordering, fence};

use super::chain::{Chain, Scratch};
use super::limit::BeyondLimit;
use crate::batch::Frames;
use crate::port::FrameBuffer;

/// Adds frames to the backlog of the port's detour. Returns `None` if the detour has ended, and otherwise the frames
/// that the port's limit refused, if any.
#[cold]
#[inline(never)]
pub(super) fn divert(chain: Chain<'_>, frames: Frames<'_, '_>, scratch: &mut Scratch) -> Option<Option<BeyondLimit>> {
    let (mut beyond, mut copies) = (None, std::mem::replace(&mut scratch.copies, FrameBuffer::without_room()));
    let is_left = chain.receiver.to.port.detour().leave(&mut copies, |output| {
        // The backlog counts frames that it has no room for, and never fails.
        let _ = chain.deliver(frames, output, scratch, &mut beyond);
    });
    scratch.copies = copies;
    if is_left && let Some(watch) = chain.receiver.watch {
        fence(Ordering::SeqCst);
        watch.ring();
    }
    is_left.then_some(beyond)
}
