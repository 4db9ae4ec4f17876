//! Frames to a port's client.

use super::counters::Counters;
use super::fault::PortFault;
use crate::batch::Frames;
use crate::frame::Accepts;

/// The egress side of a port: frames from the switch to the client. Any poller may use it while it holds the port's
/// lock.
///
/// # Example
/// A client that is a queue in this process. A frame consists of its first bytes, which are a private copy that was
/// checked, and the rest, which is still in the sender's memory. Each frame counts as delivered or as dropped.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use ringway_memory::Mapping;
/// use ringway_switch::{Counters, DropReason, Frames, Output, PortFault};
///
/// struct Queue {
///     frames: Arc<Mutex<Vec<Vec<u8>>>>,
///     buffer: Mapping,
/// }
///
/// impl Output for Queue {
///     fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
///         let mut queue = self.frames.lock().expect("no thread panicked");
///         let (mut given, mut bytes) = (0, 0);
///         for frame in frames {
///             if queue.len() == 256 {
///                 counters.drop_out(DropReason::ReceiverFull, 1);
///                 continue;
///             }
///             let mut copy = frame.first_bytes().to_vec();
///             for rest in frame.rest() {
///                 let at = copy.len();
///                 copy.resize(at + rest.len(), 0);
///                 rest.read(&mut copy[at..]);
///             }
///             bytes += copy.len() as u64;
///             given += 1;
///             queue.push(copy);
///         }
///         counters.add_out(given, bytes);
///         Ok(())
///     }
/// }
/// ```
pub trait Output: Send {
    /// The optional functions that this output has. Called under the same lock as `deliver`. The result may change
    /// between two deliveries.
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities::default()
    }

    /// Returns the queue number (below 64) of each of these frames, or `None` if the port has one queue. Called while
    /// the client drops frames because it has no room: the senders to each queue then have shares of it.
    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        let _ = frames;
        None
    }

    /// Returns the free and the total number of frames, both approximate, in the queue that all these frames go to. A
    /// frame that is longer than [`Output::buffer`] takes the room of several. Returns `None` if the port cannot tell without delay. Called while the client drops frames because it has no
    /// room.
    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        let _ = frames;
        None
    }

    /// Returns the bytes of the longest frame that takes the room of one ([`Output::room`]), approximate.
    fn buffer(&mut self) -> usize {
        usize::MAX
    }

    /// Delivers `frames` in order with one reservation and one publication. Counts each frame as delivered or as dropped.
    ///
    /// # Errors
    /// The client broke the rules.
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault>;

    /// Tells the client how many frames it has lost ([`Counters::lost_by_receiver`]), if there is a place for that. Called under the
    /// same lock as `deliver`, when frames may have been dropped without `deliver`.
    fn note_losses(&mut self, counters: &Counters) {
        let _ = counters;
    }

    /// Counts frames that were lost after they had counted as delivered. Called by the port's own poller at an event of
    /// its input, unless another thread delivers: `deliver` counts them, too.
    fn count_late(&mut self, counters: &Counters) {
        let _ = counters;
    }
}

/// The optional functions of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputCapabilities {
    /// The offloads that `deliver` accepts. Others are done in software before delivery.
    pub accepts: Accepts,
    /// True if `deliver` notes the drop reason of each frame that it drops, with [`crate::Frame::lose`]. Other outputs
    /// are given frames one at a time while the port is captured.
    pub names_losses: bool,
    /// Longest frame, in bytes, that the client takes while all its buffers are free. Segments are not joined beyond it.
    pub longest: usize,
}

impl Default for OutputCapabilities {
    /// Complete frames of any length.
    fn default() -> OutputCapabilities {
        OutputCapabilities { accepts: Accepts::NOTHING, names_losses: false, longest: usize::MAX }
    }
}
