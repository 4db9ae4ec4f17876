//! Fields of a message, read one after the other.

/// Reads the fields of a message one after another, in the machine's byte order. The caller has checked the length of
/// the message; reads beyond its end return 0.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *first
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }
}
