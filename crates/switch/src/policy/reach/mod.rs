//! Which ports may exchange frames (fairness paper, §4.2 and §4.3).

use super::rule::Rule;
use crate::frame::DropReason;

/// The ports that a port may exchange frames with. Both sides must allow it.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// True if the port is an uplink.
    pub uplink: bool,
    /// Sorted indices of the allowed uplinks. `None`: all.
    pub uplinks: Option<Box<[u16]>>,
    /// Sorted indices of the allowed ports that are no uplinks. `None`: all.
    pub allow: Option<Box<[u16]>>,
    /// In a map switch: the uplink for frames whose destination is not bound.
    pub default_uplink: Option<u16>,
}

impl Reach {
    /// Returns `Ok` if this port allows frames to and from the port with this index, whose reach is `other`.
    ///
    /// # Errors
    /// The drop reason.
    #[inline(always)]
    pub(crate) fn permits(&self, index: u16, other: &Reach) -> Result<(), DropReason> {
        if self.uplinks.is_none() && self.allow.is_none() {
            return Ok(());
        }
        self.permits_by_list(index, other)
    }

    fn permits_by_list(&self, index: u16, other: &Reach) -> Result<(), DropReason> {
        let (list, denied) = match other.uplink {
            true => (&self.uplinks, DropReason::UplinkDenied),
            false => (&self.allow, DropReason::PairDenied),
        };
        match list {
            Some(list) if list.binary_search(&index).is_err() => Err(denied),
            _ => Ok(()),
        }
    }
}

impl Rule for Reach {
    /// Reach depends on the ports only.
    fn may_drop_unread(&self) -> bool {
        true
    }
}
