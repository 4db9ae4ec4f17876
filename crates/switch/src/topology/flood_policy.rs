//! Flooding policy: where frames without a single destination go.

use crate::batch::Destination;
use crate::frame::{DropReason, Mac};

/// Which forwarding function a switch uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// A learning bridge.
    Learning,
    /// The MAC map: frames go to the port that their destination is bound to.
    Map,
}

/// Where frames without a single destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodAction {
    /// To every port except the source.
    Flood,
    /// Dropped and counted.
    Drop,
    /// To one port, where a process answers them (VALE §3.3.2).
    Port(u16),
}

impl FloodAction {
    /// The destination of the frame. `dropped` is the reason for [`FloodAction::Drop`].
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

/// The [`FloodAction`] of each class of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodPolicy {
    /// ff:ff:ff:ff:ff:ff.
    pub broadcast: FloodAction,
    /// Other group addresses. There is no multicast snooping.
    pub multicast: FloodAction,
    /// Station addresses that are at no known port.
    pub unknown_unicast: FloodAction,
    /// The groups 01:80:c2:00:00:00 to 0f that are forwarded like other groups, by their last byte.
    pub reserved: ReservedGroups,
}

/// Groups among 01:80:c2:00:00:00 to 0f, which are for the neighbouring bridge itself (IEEE 802.1Q table 8-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedGroups(u16);

impl ReservedGroups {
    /// Adds the group with this last byte, 0 to 15.
    #[must_use]
    pub fn with(self, last: u8) -> Self {
        Self(self.0 | 1 << (last & 15))
    }

    /// Returns true if this address, which is a reserved group, is one of them.
    pub(crate) fn contains(self, group: Mac) -> bool {
        self.0 & 1 << (group.octets()[5] & 15) != 0
    }
}

impl FloodPolicy {
    /// Returns true if frames for groups may go to a single port.
    #[inline]
    pub(crate) fn direct_groups(&self) -> bool {
        [self.broadcast, self.multicast].iter().any(|spread| matches!(spread, FloodAction::Port(_)))
    }
}

impl Default for FloodPolicy {
    fn default() -> Self {
        Self {
            broadcast: FloodAction::Flood,
            multicast: FloodAction::Flood,
            unknown_unicast: FloodAction::Flood,
            reserved: ReservedGroups::default(),
        }
    }
}
