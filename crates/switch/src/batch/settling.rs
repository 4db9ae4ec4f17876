//! Memory for the verdicts of a forwarding program.

use super::audience::Audience;
use super::destination::Packed;
use crate::time::Measure;

/// Memory for a forwarding program's verdicts, allocated with the first batch of a program.
#[derive(Debug)]
pub(super) struct Settling {
    /// By frame: the destination that the program chose.
    pub(super) settled: Box<[Option<Packed>]>,
    /// The frames that the program judges, if these are not all of the batch.
    pub(super) accepted: Vec<u16>,
    pub(super) is_listed: bool,
    /// The frames that it has judged before, and its words.
    pub(super) known: Vec<(u16, u32)>,
    /// Its words on the others, by place among them, while these may be needed again.
    pub(super) words: Vec<u32>,
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
            is_listed: false,
            known: Vec::with_capacity(limit),
            words: Vec::with_capacity(limit),
            audience: Audience::new(limit),
            clock: None,
            program_ns: 0,
        }
    }
}
