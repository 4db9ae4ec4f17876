//! The trait that every policy implements.

use crate::batch::Batch;

/// A policy. A new one is a folder beside this file, an implementation of this trait, and a line where the policies of its kind
/// are registered: [`crate::policy::Policy`] for those of one port, [`crate::policy::Domain`] for those of a switch.
pub(crate) trait Rule {
    /// Returns true if frames may be dropped unread. The precondition: the last frames of a pass had the same two
    /// addresses, went to the same port, and were refused by that port's egress limit. Reading the next such frames
    /// would refuse them one by one. A policy returns true if it decides by the addresses only and does not count the
    /// frames that it passes.
    fn may_drop_unread(&self) -> bool;

    /// Rejects frames of a batch before forwarding.
    #[inline]
    fn admit(&self, batch: &mut Batch<'_>) {
        let _ = batch;
    }
}
