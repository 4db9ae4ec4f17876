//! The two directions of a device on the data path. Each is behind a lock that a poller holds for a batch at most. The port's
//! own thread holds that lock for a few instructions.

use super::block::apart;
use super::offsets::{RDBAH, RDBAL, RDH, RDLEN, SECOND, TDBAL, TDH, TDT};
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

/// A ring does not start in memory of which a part was lost: it would be stopped again, and again cost the memory that is in the
/// place of what it touches until then.
#[cold]
fn whole(memory: &Dma) -> Result<(), RingFault> {
    let lost = memory.readable.is_lost() || memory.writable.is_lost();
    if lost { Err(RingFault::MemoryLost) } else { Ok(()) }
}

/// Frames from the guest.
pub(super) struct InputSide {
    pub(super) memory: Dma,
    /// The ring whose turn it is; of the 82574L's two the other waits in `other`.
    pub(super) ring: Ring<Transmit>,
    pub(super) other: Ring<Transmit>,
    /// Which of them `ring` is: where its registers are behind those of the first.
    pub(super) queue: u32,
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
    /// The ring with the registers `queue` behind those of the first.
    pub(super) fn ring_at(&mut self, queue: u32) -> &mut Ring<Transmit> {
        if queue == self.queue { &mut self.ring } else { &mut self.other }
    }

    /// Makes it the other ring's turn, if there may be frames.
    #[inline]
    pub(super) fn turn(&mut self, page: &RingPage) {
        if self.other_pending(page) {
            std::mem::swap(&mut self.ring, &mut self.other);
            self.queue ^= SECOND;
        }
    }

    /// Whether there may be frames in the ring whose turn it is not.
    #[inline]
    fn other_pending(&self, page: &RingPage) -> bool {
        let queue = self.queue ^ SECOND;
        self.other.is_on() && self.link && is_pending(&self.other, page, queue, page.get(TDT + queue) & 0xffff)
    }

    /// Whether either ring is.
    pub(super) fn is_on(&self) -> bool {
        self.ring.is_on() || self.other.is_on()
    }

    /// Whether there may be frames in either.
    #[inline]
    pub(super) fn any_pending(&self, page: &RingPage) -> bool {
        self.pending(page, self.tail(page)) || self.other_pending(page)
    }

    /// Starts the ring, if it is only enabled.
    #[inline]
    pub(super) fn start(&mut self, page: &RingPage) -> Result<(), RingFault> {
        if let Ring::Enabled = self.ring {
            whole(&self.memory)?;
            let (base, count, head) = place(page, TDBAL + self.queue);
            apart(self.csb, base, count)?;
            self.ring = Ring::On(Transmit::start(base, count, head)?);
        }
        Ok(())
    }

    /// Whether there may be frames before `tail` of the ring whose turn it is.
    #[inline]
    pub(super) fn pending(&self, page: &RingPage, tail: u32) -> bool {
        self.link && is_pending(&self.ring, page, self.queue, tail)
    }
}

#[inline]
fn is_pending(ring: &Ring<Transmit>, page: &RingPage, queue: u32, tail: u32) -> bool {
    match ring {
        Ring::On(ring) => ring.pending(tail),
        Ring::Enabled => page.get(TDH + queue) & 0xffff != tail,
        Ring::Off | Ring::Broken => false,
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
                whole(&self.memory)?;
                apart(self.csb, base, count)?;
                self.ring = Ring::On(Receive::start(base, count, head, self.format)?);
            }
        }
        Ok(())
    }
}
