//! Random numbers, the same in every run.

/// A generator (xorshift, G. Marsaglia, 2003).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// With a seed that is not 0.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        assert!(seed != 0);
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }
}
