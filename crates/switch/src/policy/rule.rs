//! What every policy answers.

use crate::batch::Batch;

/// A policy. A new one is a folder beside this file, an implementation of this trait, and a line where the policies of its kind
/// are registered: [`crate::policy::Policy`] for those of one port, [`crate::policy::Domain`] for those of a switch.
pub(crate) trait Rule {
    /// Returns true if frames may be dropped unread when a pass ended with frames of the same two addresses that went to the same
    /// port, and that the limit of this port refused. The frames would be refused one by one, so a policy allows it if it neither
    /// decides by anything but the addresses nor counts what it lets pass.
    fn may_drop_unread(&self) -> bool;

    /// Rejects frames of a batch before it is decided where they go.
    #[inline]
    fn admit(&self, batch: &mut Batch<'_>) {
        let _ = batch;
    }
}
