//! Frames from a port's client.

use super::fault::PortFault;
use crate::batch::Batch;
use crate::frame::WaitingPlace;

/// The ingress side of a port: frames from the client to the switch. It belongs to one poller at a time.
///
/// A pass calls [`collect`](Input::collect), delivers the frames, and calls [`release`](Input::release). Between passes a poller
/// looks for frames with [`pending`](Input::pending). Before it sleeps it calls [`arm`](Input::arm), and afterwards
/// [`disarm`](Input::disarm).
///
/// A poller learns of changes of a descriptor once, when they happen. An input that reads a descriptor (a device, a socket) therefore
/// is pending, and says so when it is armed, from a read that found something until one that found nothing: neither frames nor the
/// end of a connection wait behind the last read for an event that has come already.
///
/// # Example
/// A client that is a queue in this process. Its memory belongs to the port, so nothing has to be given back.
///
/// ```
/// use std::collections::VecDeque;
/// use std::sync::{Arc, Mutex};
///
/// use ringway_memory::Mapping;
/// use ringway_switch::{Armed, Batch, Discarded, Input, PortFault, WakeOn};
///
/// struct Queue {
///     /// Frames of the client.
///     frames: Arc<Mutex<VecDeque<Vec<u8>>>>,
///     /// Memory of the port: the batch refers to it until the frames are released.
///     memory: Mapping,
/// }
///
/// impl Queue {
///     const FRAME: usize = 2048;
/// }
///
/// impl Input for Queue {
///     fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
///         let mut frames = self.frames.lock().expect("no thread panicked");
///         let mut at = 0;
///         while batch.room() > 0
///             && let Some(buffer) = self.memory.view(at, Self::FRAME)
///             && let Some(frame) = frames.pop_front()
///         {
///             let len = frame.len().min(Self::FRAME);
///             buffer.write(&frame[..len]);
///             batch.push(buffer, len);
///             at += Self::FRAME;
///         }
///         Ok(())
///     }
///
///     fn release(&mut self) {}
///
///     fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
///         let mut frames = self.frames.lock().expect("no thread panicked");
///         let most = most.min(frames.len());
///         let bytes = frames.drain(..most).map(|frame| frame.len() as u64).sum();
///         Ok(Discarded { frames: most as u64, bytes })
///     }
///
///     fn pending(&mut self) -> bool {
///         !self.frames.lock().expect("no thread panicked").is_empty()
///     }
///
///     /// The client cannot wake a poller, and has no events.
///     fn arm(&mut self, wake_on: WakeOn) -> Armed {
///         match wake_on {
///             WakeOn::Frames if self.pending() => Armed::Pending,
///             _ => Armed::Silent,
///         }
///     }
///
///     fn disarm(&mut self) {}
/// }
///
/// let frames = Arc::new(Mutex::new(VecDeque::from([vec![0; 60]])));
/// let mut input = Queue { frames, memory: Mapping::private(256 * Queue::FRAME)? };
/// assert!(input.pending());
/// let mut batch = ringway_switch::BatchStorage::new(256).into_batch();
/// input.collect(&mut batch).expect("this client breaks no rules");
/// assert_eq!(batch.len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Input: Send {
    /// The optional functions that this input has.
    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities::default()
    }

    /// Takes up to `batch.room()` frames, without giving their memory back yet.
    ///
    /// # Errors
    /// The client broke the rules. Frames already in the batch may still be delivered.
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault>;

    /// Gives the memory of the last collected frames back to the client. Called once after every `collect`, also after one that
    /// took nothing or failed: a lock that `collect` takes may be released here.
    fn release(&mut self);

    /// Keeps only the first `frames` frames of the last collect. The others stay in the client's ring, and a later
    /// collect takes them again. Not called if a frame of that collect was refused. Called before `release`, and only
    /// if [`InputCapabilities::rewind`] is set.
    fn rewind(&mut self, frames: usize) {
        let _ = frames;
    }

    /// Drops up to `most` frames unread: takes them and gives them back at once.
    ///
    /// # Errors
    /// The client broke the rules.
    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault>;

    /// Drops up to `most` frames that begin with these two Ethernet addresses, without reading the rest of each frame.
    /// Stops at the first frame with other addresses, and at a frame that would take longer to check, for example one
    /// in several pieces. Called only if [`InputCapabilities::discard_like`] is set.
    ///
    /// # Errors
    /// The client broke the rules.
    fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
        let _ = (addresses, most);
        Ok(Discarded::default())
    }

    /// Returns true if the port's memory shows frames or events. Port kinds that must ask a file descriptor return true if the last
    /// read did not find it empty.
    fn pending(&mut self) -> bool;

    /// Returns true if there are frames. Port kinds that must ask a file descriptor make a system call here.
    fn has_frames(&mut self) -> bool {
        self.pending()
    }

    /// Asks the client for a kick, and then checks once more for frames and events, so that one that came in between is
    /// not missed.
    fn arm(&mut self, wake_on: WakeOn) -> Armed;

    /// Tells the client that it need not kick.
    fn disarm(&mut self);

    /// Returns the most frames that the client can have published when its port is removed. The poller delivers these
    /// before it lets the input go. 0: frames that were not taken until then are lost.
    fn last_frames(&self) -> usize {
        0
    }

    /// Returns true if an event other than a frame is pending, and clears it. The event is for the port's own client:
    /// the poller then rings the port's [`super::Bell`]. Called if no frames were taken, and while frames wait for
    /// their limit.
    fn take_event(&mut self) -> bool {
        false
    }
}

/// The optional functions of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputCapabilities {
    /// With `rewind`: where frames wait.
    pub waiting: WaitingPlace,
    /// [`Input::rewind`]: frames can wait in the client's ring for their receiver. Otherwise they are dropped.
    pub rewind: bool,
    /// [`Input::discard_like`]: frames for a receiver beyond its limit can be dropped unread.
    pub discard_like: bool,
}

/// The events for which an armed port's client must kick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeOn {
    /// When it has frames, or at an event.
    Frames,
    /// At an event only, because the client's frames wait for their limit.
    Events,
}

/// Result of arming a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The client will kick.
    Kick,
    /// There are frames or events already.
    Pending,
    /// There are no frames or events yet, and the client cannot kick: the poller must poll the port's memory.
    Silent,
}

impl Armed {
    /// Returns [`Armed::Pending`] if `pending` is true, and otherwise [`Armed::Kick`]. For clients that can kick.
    #[must_use]
    pub fn with_kick(pending: bool) -> Armed {
        if pending { Armed::Pending } else { Armed::Kick }
    }
}

/// The frames that [`Input::discard`] dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes in these frames, as far as the port can tell.
    pub bytes: u64,
}
