//! A batch to be delivered.

use crate::batch::Batch;
use crate::topology::Context;

/// A batch to be delivered: forwarding has set the destination of each frame.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'p, 'b, 'm> {
    pub(crate) context: &'p Context<'p>,
    pub(crate) batch: &'b Batch<'m>,
    /// At every port whose limit makes senders wait, room is reserved for the unicast frames of the batch.
    pub(crate) is_reserved: bool,
}
