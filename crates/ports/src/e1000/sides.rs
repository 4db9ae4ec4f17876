//! The two directions of a device, as the data path has them. Each is behind a lock that a poller holds for a batch at most;
//! what the port's own thread does with it takes a few instructions.

use crate::e1000::rings::{
    Bounce, Format, Receive, ReceiveSettings, Received, RingFault, Traffic, Transmit, TransmitSettings,
};
use crate::vfio_user::Dma;

/// Where the registers say that a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latched {
    /// Guest physical address.
    pub(super) base: u64,
    /// 16-byte descriptors.
    pub(super) count: u32,
    pub(super) head: u32,
}

/// A ring that registers turn on and off.
#[derive(Debug, Default)]
pub(super) enum Ring<R> {
    /// Off.
    #[default]
    Off,
    /// On, and not used yet: drivers may still be writing the registers, tests of drivers do.
    Latched(Latched),
    /// In use.
    On(R),
    /// The guest broke a rule. Nothing happens until the ring is turned on anew.
    Broken,
}

impl<R> Ring<R> {
    pub(super) fn is_on(&self) -> bool {
        matches!(self, Ring::Latched(_) | Ring::On(_))
    }
}

/// Frames from the guest.
pub(super) struct InputSide {
    pub(super) memory: Dma,
    pub(super) ring: Ring<Transmit>,
    pub(super) settings: TransmitSettings,
    pub(super) bounce: Bounce,
    /// Frames can leave.
    pub(super) link: bool,
    /// They come back instead.
    pub(super) looped: bool,
    /// Sent since the statistics registers were read.
    pub(super) sent: Traffic,
}

impl InputSide {
    /// The ring, started if it was only latched; none when it is off.
    #[inline]
    pub(super) fn start(&mut self) -> Result<(), RingFault> {
        if let Ring::Latched(Latched { base, count, head }) = self.ring {
            self.ring = Ring::On(Transmit::start(base, count, head)?);
        }
        Ok(())
    }

    /// Whether there may be frames before `tail`.
    #[inline]
    pub(super) fn pending(&self, tail: u32) -> bool {
        self.link
            && match &self.ring {
                Ring::On(ring) => ring.pending(tail),
                Ring::Latched(latched) => latched.head != tail,
                Ring::Off | Ring::Broken => false,
            }
    }
}

/// Frames to the guest.
pub(super) struct OutputSide {
    pub(super) memory: Dma,
    pub(super) ring: Ring<Receive>,
    pub(super) settings: ReceiveSettings,
    /// What descriptors look like.
    pub(super) format: Format,
    /// Frames can come.
    pub(super) link: bool,
    /// Only its own do.
    pub(super) looped: bool,
    /// Received since the statistics registers were read.
    pub(super) received: Received,
}

impl OutputSide {
    /// As [`InputSide::start`].
    #[inline]
    pub(super) fn start(&mut self) -> Result<(), RingFault> {
        if let Ring::Latched(Latched { base, count, head }) = self.ring {
            self.ring = Ring::On(Receive::start(base, count, head, self.format)?);
        }
        Ok(())
    }
}
