//! The two directions of a device on the data path. Each is behind a lock that a poller holds for a batch at most. The port's
//! own thread holds that lock for a few instructions.

use super::kept::{Place, RECEIVE, State, TRANSMIT, TRANSMIT_SECOND};
use super::offsets::{RDBAH, RDBAL, RDH, RDLEN, SECOND, TDBAL, TDH, TDT};
use super::ring_page::RingPage;
use super::rings::{
    Bounce, CsbLocation, Format, PacketBuffer, Receive, ReceiveSettings, Received, RingFault, Traffic, Transmit,
    TransmitSettings,
};
use crate::vfio_user::Dma;
use std::sync::Arc;

/// The bits of RDLEN and TDLEN that hold the length in bytes.
const LENGTH: u32 = 0xf_ff80;

/// A ring that registers turn on and off.
#[derive(Debug, Default)]
pub(super) enum Ring<R> {
    /// Off.
    #[default]
    Off,
    /// On, but without descriptors so far. Drivers may write the registers with the ring's address after they have
    /// turned the ring on, and mapped registers without a message. The values at the time of the first descriptor
    /// apply.
    Enabled,
    /// In use.
    On(R),
    /// The guest broke a rule. The ring is idle until it is turned on again.
    Broken,
}

impl<R> Ring<R> {
    pub(super) fn is_on(&self) -> bool {
        matches!(self, Ring::Enabled | Ring::On(_))
    }
}

/// A ring whose position is noted for a successor of this process.
pub(super) trait Noted {
    /// The ring rests, also in a successor.
    fn set_broken(&mut self);
}

impl Noted for Transmit {
    fn set_broken(&mut self) {
        Transmit::set_broken(self);
    }
}

impl Noted for Receive {
    fn set_broken(&mut self) {
        Receive::set_broken(self);
    }
}

/// What remains in the packet buffer after a poller has drained it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backlog {
    /// No frames, or frames for which the guest will give descriptors by a message.
    Announced,
    /// Frames for which the guest gives descriptors without a message.
    Polled,
}

/// Returns where the registers from `low` on (RDBAL or TDBAL) place a ring: guest physical address, number of 16-byte
/// descriptors, and head.
pub(super) fn ring_location(page: &RingPage, low: u32) -> (u64, u32, u32) {
    let (high, length, head) = (low + (RDBAH - RDBAL), low + (RDLEN - RDBAL), low + (RDH - RDBAL));
    let base = u64::from(page.get(low) & !0xf) | u64::from(page.get(high)) << 32;
    (base, (page.get(length) & LENGTH) / 16, page.get(head) & 0xffff)
}

/// Refuses to start a ring in memory that has lost a page. The ring would stop again at once, and every page it
/// touches until then would cost memory that replaces the lost page.
#[cold]
fn check_not_lost(memory: &Dma) -> Result<(), RingFault> {
    let lost = memory.readable.is_lost() || memory.writable.is_lost();
    if lost { Err(RingFault::MemoryLost) } else { Ok(()) }
}

/// Checks that a ring does not overlap the communication status block.
fn check_block(csb: Option<CsbLocation>, base: u64, count: u32) -> Result<(), RingFault> {
    csb.map_or(Ok(()), |csb| csb.check(base, count))
}

/// State of the input: frames from the guest.
pub(super) struct InputState {
    pub(super) memory: Dma,
    pub(super) page: RingPage,
    pub(super) state: Arc<State>,
    /// `ring` is the transmit ring whose turn it is. `other` is the second ring of an 82574L, which waits.
    pub(super) ring: Ring<Transmit>,
    pub(super) other: Ring<Transmit>,
    /// Tells which of the two `ring` is: the offset of its registers from those of the first ring.
    pub(super) queue: u32,
    pub(super) settings: TransmitSettings,
    pub(super) bounce: Bounce,
    /// True if frames can leave: there is a link, and the device may access memory.
    pub(super) link: bool,
    /// True if frames are looped back instead of sent.
    pub(super) looped: bool,
    pub(super) csb: Option<CsbLocation>,
    /// The guest was asked to write the tail register.
    pub(super) asks: bool,
    /// Frames sent since the statistics registers were read.
    pub(super) sent: Traffic,
    /// Frames segmented since the statistics registers were read, and frames whose segmentation failed.
    pub(super) segmented: [u64; 2],
}

impl InputState {
    /// Returns the ring whose registers are at offset `queue` from those of the first ring.
    pub(super) fn ring_at(&mut self, queue: u32) -> &mut Ring<Transmit> {
        if queue == self.queue { &mut self.ring } else { &mut self.other }
    }

    /// Switches to the other ring if that may have frames.
    #[inline]
    pub(super) fn switch_ring(&mut self) {
        if self.other_pending() {
            std::mem::swap(&mut self.ring, &mut self.other);
            self.queue ^= SECOND;
        }
    }

    /// Returns true if the waiting ring may have frames.
    #[inline]
    fn other_pending(&self) -> bool {
        let queue = self.queue ^ SECOND;
        self.other.is_on()
            && self.link
            && is_pending(&self.other, &self.page, queue, self.page.get(TDT + queue) & 0xffff)
    }

    /// Returns true if either ring is on.
    pub(super) fn is_on(&self) -> bool {
        self.ring.is_on() || self.other.is_on()
    }

    /// Returns true if either ring may have frames.
    #[inline]
    pub(super) fn any_pending(&self) -> bool {
        self.pending(self.tail()) || self.other_pending()
    }

    /// Starts the ring if it is enabled and not yet in use. Fails if its registers are lost.
    #[inline]
    pub(super) fn start(&mut self) -> Result<(), RingFault> {
        if self.page.is_lost() {
            return Err(RingFault::MemoryLost);
        }
        if let Ring::Enabled = self.ring {
            check_not_lost(&self.memory)?;
            let (base, count, head) = ring_location(&self.page, TDBAL + self.queue);
            check_block(self.csb, base, count)?;
            self.ring = Ring::On(Transmit::start(base, count, head)?.noted_in(self.place(self.queue)));
        }
        Ok(())
    }

    /// Where the position of the ring whose registers are at offset `queue` is noted.
    pub(super) fn place(&self, queue: u32) -> Option<Place> {
        self.state.place(if queue == 0 { TRANSMIT } else { TRANSMIT_SECOND })
    }

    /// Notes that these rings are not in use.
    pub(super) fn forget_places(&self, rings: &[u32]) {
        // A place that is dropped says so.
        rings.iter().for_each(|queue| drop(self.place(*queue)));
    }

    /// Returns true if the current ring may have frames before `tail`.
    #[inline]
    pub(super) fn pending(&self, tail: u32) -> bool {
        self.link && is_pending(&self.ring, &self.page, self.queue, tail)
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

/// State of the output: frames to the guest.
pub(super) struct OutputState {
    pub(super) memory: Dma,
    pub(super) page: RingPage,
    pub(super) state: Arc<State>,
    pub(super) ring: Ring<Receive>,
    pub(super) settings: ReceiveSettings,
    /// Layout of the receive descriptors.
    pub(super) format: Format,
    /// True if frames can arrive: there is a link, and the device may access memory.
    pub(super) link: bool,
    /// True if only the guest's own frames arrive (loopback).
    pub(super) looped: bool,
    pub(super) csb: Option<CsbLocation>,
    /// The packet buffer: frames that wait for descriptors.
    pub(super) buffer: PacketBuffer,
    /// Frames that counted as delivered, were lost from the packet buffer, and are in no counter of the port yet.
    pub(super) lost: u64,
    /// Frames received since the statistics registers were read.
    pub(super) received: Received,
}

impl OutputState {
    /// Notes that the ring is not in use.
    pub(super) fn forget_place(&self) {
        drop(self.state.place(RECEIVE));
    }

    /// Drops the waiting frames and counts them as lost, unless they are the guest's own: those never counted as
    /// delivered.
    pub(super) fn forget(&mut self) {
        let forgotten = self.buffer.clear();
        self.lost += if self.looped { 0 } else { forgotten };
    }

    /// Starts the ring if it is enabled, not yet in use, and has descriptors. Fails if it is on and its registers are lost.
    #[inline]
    pub(super) fn start(&mut self, tail: u32) -> Result<(), RingFault> {
        if self.page.is_lost() && self.ring.is_on() {
            return Err(RingFault::MemoryLost);
        }
        if let Ring::Enabled = self.ring {
            let (base, count, head) = ring_location(&self.page, RDBAL);
            if head != tail {
                check_not_lost(&self.memory)?;
                check_block(self.csb, base, count)?;
                let ring = Receive::start(base, count, head, self.format)?;
                self.ring = Ring::On(ring.noted_in(self.state.place(RECEIVE)));
            }
        }
        Ok(())
    }
}
