//! What came of a pass.

use crate::port::PortFault;

/// What came of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames taken from the source.
    pub frames: u64,
    /// The source may have more, although the batch was not full.
    pub more: bool,
    /// The source is not to be served before this time (nanoseconds): what it has may not pass yet.
    pub until: Option<u64>,
    /// The source broke the rules and must end.
    pub fault: Option<PortFault>,
    /// A receiver broke the rules, or waking a port blocked; [`crate::Port::fault`] says which.
    pub receiver_fault: bool,
}
