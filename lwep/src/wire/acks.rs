//! The data of ACKS.

/// Bytes of an entry.
pub const BYTES: usize = 16;

/// What ACKS says of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The receiver's identifier of the connection.
    pub connection: u32,
    /// The receiver's secret of the connection.
    pub token: u32,
    /// The next number that is expected.
    pub acknowledgement: u32,
    /// Messages from `acknowledgement` on that can be taken.
    pub window: u16,
}

impl Entry {
    /// Returns the bytes.
    #[inline]
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..4].copy_from_slice(&self.connection.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.token.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.window.to_be_bytes());
        bytes
    }

    /// Reads an entry.
    #[inline]
    pub fn decode(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let window = u16::from_be_bytes([bytes[12], bytes[13]]);
        Self { connection: word(0), token: word(4), acknowledgement: word(8), window }
    }
}
