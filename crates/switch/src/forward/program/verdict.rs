//! What a program may say of a frame: one little-endian word.

use crate::batch::Audience;
use crate::frame::Owner;

/// Most drop reasons of a program.
pub const MAX_REASONS: usize = 32;
/// Most sets of ports of a program.
pub const MAX_SETS: usize = Audience::SETS;

/// What a program says of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The learning bridge decides, and learns the source address.
    BuiltIn,
    /// To this port.
    Port(Owner),
    /// To every port except the source.
    Flood,
    /// To the ports of the set with this number, below [`MAX_SETS`].
    Ports(usize),
    /// Dropped, for the program's reason with this number, below [`MAX_REASONS`].
    Drop(usize),
}

impl Verdict {
    /// Bits of a word below the kind of a verdict: a port, a set or a reason.
    const VALUE_BITS: u32 = 16;

    /// Reads a word of a program. `None`: it is no verdict.
    #[inline]
    #[must_use]
    pub fn read(word: u32) -> Option<Verdict> {
        let (kind, value) = (word >> Self::VALUE_BITS, word as u16);
        match kind {
            0 if value == 0 => Some(Verdict::BuiltIn),
            1 => Some(Verdict::Port(Owner::from_bits(value))),
            2 if value == 0 => Some(Verdict::Flood),
            3 if usize::from(value) < MAX_SETS => Some(Verdict::Ports(value.into())),
            4 if usize::from(value) < MAX_REASONS => Some(Verdict::Drop(value.into())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_no_verdict_has_are_none() {
        assert_eq!(Verdict::read(0), Some(Verdict::BuiltIn));
        assert_eq!(Verdict::read(0x1_2003), Some(Verdict::Port(Owner::new(3, 2))));
        assert_eq!(Verdict::read(0x2_0000), Some(Verdict::Flood));
        assert_eq!(Verdict::read(0x3_003f), Some(Verdict::Ports(63)));
        assert_eq!(Verdict::read(0x4_001f), Some(Verdict::Drop(31)));
        for word in [1, 0xffff, 0x2_0001, 0x3_0040, 0x4_0020, 0x5_0000, 0x1_0000_u32 << 8, u32::MAX] {
            assert_eq!(Verdict::read(word), None, "{word:#x}");
        }
    }
}
