//! Flooding policy: where frames without a single destination go.

use crate::batch::Destination;
use crate::frame::DropReason;

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
        Self { broadcast: FloodAction::Flood, multicast: FloodAction::Flood, unknown_unicast: FloodAction::Flood }
    }
}
