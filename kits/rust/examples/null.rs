//! The smallest program: all frames go where the learning bridge would send them.
#![no_std]

use ringway_program::{export, Batch, Program, Refused, Start};

struct Null;

impl Program for Null {
    type Head = [u8; 0];
    const DESCRIPTORS: bool = false; // It looks at no frame.

    fn start(_: &mut Start) -> Result<Self, Refused> {
        Ok(Null)
    }

    // Frames without a verdict have `Verdict::BUILT_IN`.
    fn frames(&mut self, _: Batch<'_, Self::Head>) {}
}

export!(Null);
