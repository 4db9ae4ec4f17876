//! The result of a pass.

use crate::port::PortFault;

/// Result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Number of frames taken from the source.
    pub frames: u64,
    /// What these frames cost, in bytes to copy ([`VISIT_WORK`](crate::VISIT_WORK)).
    pub work: u64,
    /// The source may have more frames, although the batch was not full.
    pub more: bool,
    /// The source has moved as much as one visit may: it goes on at the next one.
    pub is_exhausted: bool,
    /// Do not serve the source before this time, in nanoseconds: its frames wait for a limit.
    pub until: Option<u64>,
    /// The source broke the rules and must end.
    pub fault: Option<PortFault>,
    /// A port other than the source must end, or a call blocked. [`crate::Port::fault`] of each port tells which and
    /// why.
    pub receiver_fault: bool,
}
