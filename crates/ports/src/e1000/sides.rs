//! The two directions of a device, as the data path has them. Each is behind a lock that a poller holds for a batch at most;
//! what the port's own thread does with it takes a few instructions.

use super::block::apart;
use super::offsets::{RDBAH, RDBAL, RDH, RDLEN, TDBAL, TDH};
use super::ring_page::RingPage;
use super::rings::{
    Bounce, CsbPlace, Format, PacketBuffer, Receive, ReceiveSettings, Received, RingFault, Traffic, Transmit,
    TransmitSettings,
};
use crate::vfio_user::Dma;

/// The bits of RDLEN and TDLEN.
const LENGTH: u32 = 0xf_ff80;

/// A ring that registers turn on and off.
#[derive(Debug, Default)]
pub(super) enum Ring<R> {
    /// Off.
    #[default]
    Off,
    /// On, and without descriptors so far: drivers may write the registers that say where it is after they turned it on, and
    /// those that are mapped without a message. What they say when there is a descriptor holds.
    Enabled,
    /// In use.
    On(R),
    /// The guest broke a rule. Nothing happens until the ring is turned on anew.
    Broken,
}

impl<R> Ring<R> {
    pub(super) fn is_on(&self) -> bool {
        matches!(self, Ring::Enabled | Ring::On(_))
    }
}

/// Where the registers from `low` (RDBAL or TDBAL) on say that a ring is: guest physical address, 16-byte descriptors, head.
pub(super) fn place(page: &RingPage, low: u32) -> (u64, u32, u32) {
    let (high, length, head) = (low + (RDBAH - RDBAL), low + (RDLEN - RDBAL), low + (RDH - RDBAL));
    let base = u64::from(page.get(low) & !0xf) | u64::from(page.get(high)) << 32;
    (base, (page.get(length) & LENGTH) / 16, page.get(head) & 0xffff)
}

/// Frames from the guest.
pub(super) struct InputSide {
    pub(super) memory: Dma,
    pub(super) ring: Ring<Transmit>,
    pub(super) settings: TransmitSettings,
    pub(super) bounce: Bounce,
    /// Frames can leave: there is a link, and the device may use memory.
    pub(super) link: bool,
    /// They come back instead.
    pub(super) looped: bool,
    pub(super) csb: Option<CsbPlace>,
    /// Sent since the statistics registers were read.
    pub(super) sent: Traffic,
    /// Frames cut into segments since then, and such that could not be.
    pub(super) segmented: [u64; 2],
}

impl InputSide {
    /// Starts the ring, if it is only enabled.
    #[inline]
    pub(super) fn start(&mut self, page: &RingPage) -> Result<(), RingFault> {
        if let Ring::Enabled = self.ring {
            let (base, count, head) = place(page, TDBAL);
            apart(self.csb, base, count)?;
            self.ring = Ring::On(Transmit::start(base, count, head)?);
        }
        Ok(())
    }

    /// Whether there may be frames before `tail`.
    #[inline]
    pub(super) fn pending(&self, page: &RingPage, tail: u32) -> bool {
        self.link
            && match &self.ring {
                Ring::On(ring) => ring.pending(tail),
                Ring::Enabled => page.get(TDH) & 0xffff != tail,
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
    pub(super) csb: Option<CsbPlace>,
    /// Frames for which there are no descriptors yet.
    pub(super) buffer: PacketBuffer,
    /// Frames lost in the packet buffer that counted as delivered, and are in no counter of the port yet.
    pub(super) lost: u64,
    /// Received since the statistics registers were read.
    pub(super) received: Received,
}

impl OutputSide {
    /// Forgets the frames that wait. Those of the guest's own never counted as delivered.
    pub(super) fn forget(&mut self) {
        let forgotten = self.buffer.clear();
        self.lost += if self.looped { 0 } else { forgotten };
    }

    /// Starts the ring, if it is only enabled and has descriptors.
    #[inline]
    pub(super) fn start(&mut self, page: &RingPage, tail: u32) -> Result<(), RingFault> {
        if let Ring::Enabled = self.ring {
            let (base, count, head) = place(page, RDBAL);
            if head != tail {
                apart(self.csb, base, count)?;
                self.ring = Ring::On(Receive::start(base, count, head, self.format)?);
            }
        }
        Ok(())
    }
}
