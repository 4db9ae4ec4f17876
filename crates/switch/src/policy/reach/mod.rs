//! Between which ports frames may pass (fairness paper, §4.2 and §4.3).

use super::rule::Rule;
use crate::frame::DropReason;

/// Whom a port may exchange frames with. Both sides must allow it.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// It leads out.
    pub uplink: bool,
    /// The uplinks, by sorted indices; none: all.
    pub uplinks: Option<Box<[u16]>>,
    /// The ports that are no uplinks; none: all.
    pub allow: Option<Box<[u16]>>,
    /// The uplink that frames for addresses that are nowhere here go to in a map switch.
    pub outlet: Option<u16>,
}

impl Reach {
    /// Whether the port may exchange frames with the port of this index that `other` is of.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub(crate) fn permits(&self, index: u16, other: &Reach) -> Result<(), DropReason> {
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
    /// Decides by the ports.
    fn may_drop_unread(&self) -> bool {
        true
    }
}
