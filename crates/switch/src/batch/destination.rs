//! Where a frame goes.

use crate::frame::DropReason;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One port, by its index in the switch.
    Port(u16),
    /// Every port but the source.
    Flood,
    /// Nowhere, counted at the source.
    Drop(DropReason),
}

/// A [`Destination`] in one word, to be copied and compared once per frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(pub(super) u32);

impl Packed {
    const FLOOD: u32 = 1 << 16;
    const DROP: u32 = 2 << 16;
    /// Dropped before forwarding. The low 16 bits are the reason.
    pub(super) const REJECTED: u32 = 6 << 16;

    #[inline]
    pub(super) const fn new(destination: Destination) -> Packed {
        match destination {
            Destination::Port(port) => Packed(port as u32),
            Destination::Flood => Packed(Self::FLOOD),
            Destination::Drop(reason) => Packed(Self::DROP | reason as u32),
        }
    }

    #[inline]
    pub(super) fn unpack(self) -> Destination {
        match self.0 & !0xffff {
            0 => Destination::Port(self.0 as u16),
            Self::FLOOD => Destination::Flood,
            _ => Destination::Drop(DropReason::ALL[(self.0 & 0xffff) as usize]),
        }
    }
}
