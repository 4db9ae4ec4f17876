//! The data of OPEN and ACCEPT.

use std::net::Ipv4Addr;

/// Bytes of a description.
pub const BYTES: usize = 26;
/// Least bytes of a description.
const LEAST_BYTES: usize = 24;
/// The end wants frames with checksums.
const CHECKSUMS: u16 = 1;

/// What an end tells of itself when a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its identifier of the connection.
    pub connection: u32,
    /// Its secret of the connection.
    pub token: u32,
    /// What the other end listens for.
    pub service: u32,
    /// Most bytes of data in a frame that it takes.
    pub frame: u16,
    /// It wants frames with checksums.
    pub checksums: bool,
    /// Most bytes of a long message that it takes; 0 if none.
    pub long: u32,
    /// Its IPv4 address; unspecified if there is none.
    pub address: Ipv4Addr,
    /// Frames that wait for it at once without loss; 0 if it does not tell.
    pub holds: u16,
}

impl Description {
    /// Returns the bytes.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..4].copy_from_slice(&self.connection.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.token.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.service.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.frame.to_be_bytes());
        bytes[14..16].copy_from_slice(&(if self.checksums { CHECKSUMS } else { 0 }).to_be_bytes());
        bytes[16..20].copy_from_slice(&self.long.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.address.octets());
        bytes[24..26].copy_from_slice(&self.holds.to_be_bytes());
        bytes
    }

    /// Reads a description. Returns `None` if the bytes are too few, or it takes frames without data.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, rest) = bytes.split_first_chunk::<LEAST_BYTES>()?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let description = Self {
            connection: word(0),
            token: word(4),
            service: word(8),
            frame: half(12),
            checksums: half(14) & CHECKSUMS != 0,
            long: word(16),
            address: word(20).into(),
            holds: rest.first_chunk().map_or(0, |holds| u16::from_be_bytes(*holds)),
        };
        (description.frame > 0).then_some(description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_comes_back_as_it_was_written_and_one_without_its_last_field_is_taken() {
        let description = Description {
            connection: 1,
            token: 2,
            service: 3,
            frame: 4,
            checksums: true,
            long: 5,
            address: Ipv4Addr::new(10, 0, 0, 1),
            holds: 6,
        };
        let bytes = description.encode();
        assert_eq!(Description::decode(&bytes), Some(description));
        assert_eq!(Description::decode(&bytes[..24]), Some(Description { holds: 0, ..description }));
        assert_eq!(Description::decode(&bytes[..23]), None);
    }
}
