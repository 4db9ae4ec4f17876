//! Between which ports frames may pass (fairness paper, §4.2 and §4.3).

use crate::counters::DropReason;
use crate::switch::Member;

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
    #[inline]
    fn permits(&self, other: &Member) -> Result<(), DropReason> {
        let (list, denied) = match other.reach.uplink {
            true => (&self.uplinks, DropReason::UplinkDenied),
            false => (&self.allow, DropReason::PairDenied),
        };
        match list {
            Some(list) if list.binary_search(&other.owner.index()).is_err() => Err(denied),
            _ => Ok(()),
        }
    }
}

/// Whether frames may pass from one port to another.
///
/// # Errors
/// Why not.
#[inline]
pub(crate) fn may_pass(from: &Member, to: &Member) -> Result<(), DropReason> {
    if from.isolated && to.isolated {
        return Err(DropReason::Isolated);
    }
    from.reach.permits(to)?;
    to.reach.permits(from)
}
