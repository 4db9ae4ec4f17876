//! Frames with no single destination.

use crate::batch::Destination;
use crate::frame::DropReason;

/// Which forwarding function a switch uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// A learning bridge.
    Learning,
    /// Frames go where the MAC map says.
    Map,
}

/// What happens to frames with no single destination, per class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// To every port but the source.
    Flood,
    /// Dropped and counted.
    Drop,
    /// To one port, where a process answers them (VALE §3.3.2).
    Port(u16),
}

impl Spread {
    /// The destination of such a frame.
    #[inline]
    #[must_use]
    pub fn destination(self, dropped: DropReason) -> Destination {
        match self {
            Self::Flood => Destination::Flood,
            Self::Drop => Destination::Drop(dropped),
            Self::Port(port) => Destination::Port(port),
        }
    }
}

/// [`Spread`] of each class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spreads {
    /// ff:ff:ff:ff:ff:ff.
    pub broadcast: Spread,
    /// Other group addresses. (No group is known: there is no snooping.)
    pub multicast: Spread,
    /// Station addresses that are nowhere.
    pub unknown_unicast: Spread,
}

impl Spreads {
    /// Whether frames to groups may go to one port.
    #[inline]
    pub(crate) fn direct_groups(&self) -> bool {
        [self.broadcast, self.multicast].iter().any(|spread| matches!(spread, Spread::Port(_)))
    }
}

impl Default for Spreads {
    fn default() -> Self {
        Self { broadcast: Spread::Flood, multicast: Spread::Flood, unknown_unicast: Spread::Flood }
    }
}
