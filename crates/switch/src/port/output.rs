//! Frames to a port's client.

use super::counters::Counters;
use super::fault::PortFault;
use crate::batch::Frames;
use crate::frame::Accepts;

/// The side of a port that frames go out by. Used under the port's lock, by any poller.
pub trait Output: Send {
    /// The offloads that `deliver` may be given; other frames are finished before. Asked under the same lock.
    fn accepts(&self) -> Accepts {
        Accepts::NOTHING
    }

    /// Which of its queues (below 64) each of these frames goes to, where it has several. Asked while the client loses frames
    /// for want of room, as each queue then has its own shares.
    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        let _ = frames;
        None
    }

    /// About how many frames there is room for now, and at most, in the queue that these frames all go to, as far as that can
    /// be told at once. Asked while the client loses frames for want of room.
    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        let _ = frames;
        None
    }

    /// Delivers `frames` in order with one reservation and one publication, and counts what it delivers and drops.
    ///
    /// # Errors
    /// The client broke the rules.
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault>;

    /// Whether `deliver` says of each frame that it drops that it does so ([`crate::Frame::lose`]). One that does not is given
    /// frames one at a time where somebody wants to see which.
    fn names_losses(&self) -> bool {
        false
    }

    /// Counts what became since of frames that counted as delivered. Called by the port's own poller when its input has news.
    fn count_late(&mut self, counters: &Counters) {
        let _ = counters;
    }
}
