//! Memory for the verdicts of a forwarding program.

use super::audience::Audience;
use super::destination::Packed;
use crate::time::Measure;

/// Memory for a forwarding program's verdicts, allocated with the first batch of a program.
#[derive(Debug)]
pub(super) struct Settling {
    /// By frame: the destination that the program chose.
    pub(super) settled: Box<[Option<Packed>]>,
    /// The frames that were not rejected.
    pub(super) accepted: Vec<u16>,
    pub(super) audience: Audience,
    /// While passes are examined: the clock, and the nanoseconds that programs took.
    pub(super) clock: Option<Measure>,
    pub(super) program_ns: u64,
}

impl Settling {
    pub(super) fn new(limit: usize) -> Settling {
        Settling {
            settled: vec![None; limit].into(),
            accepted: Vec::with_capacity(limit),
            audience: Audience::new(limit),
            clock: None,
            program_ns: 0,
        }
    }
}
