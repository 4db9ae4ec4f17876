//! The header of the plain layout.

use super::checksum;

/// Bytes of the header.
pub const BYTES: usize = 34;
/// The version of the protocol.
pub const VERSION: u8 = 1;
/// Flag: a CRC-32C follows the data.
pub const CHECKSUM: u8 = 1;
/// Flag: the receiver is to acknowledge at once.
pub const ANSWER: u8 = 2;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Asks for a connection.
    Open = 1,
    /// Grants a connection.
    Accept = 2,
    /// A message or a fragment.
    Data = 3,
    /// Acknowledges.
    Ack = 4,
    /// Asks for an acknowledgement.
    Probe = 5,
    /// The sender sends no further messages.
    End = 6,
    /// The connection has ended.
    Reset = 7,
    /// The answer to a frame for no connection.
    Unknown = 8,
    /// Acknowledges for several connections.
    Acks = 9,
}

impl Kind {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Open,
            2 => Self::Accept,
            3 => Self::Data,
            4 => Self::Ack,
            5 => Self::Probe,
            6 => Self::End,
            7 => Self::Reset,
            8 => Self::Unknown,
            9 => Self::Acks,
            _ => return None,
        })
    }
}

/// The fields that frames of both layouts have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type.
    pub kind: Kind,
    /// [`CHECKSUM`], [`ANSWER`].
    pub flags: u8,
    /// Bytes of data.
    pub length: u16,
    /// The receiver's identifier of the connection.
    pub connection: u32,
    /// The receiver's secret of the connection.
    pub token: u32,
    /// Of this message, or of the next one that will be sent.
    pub number: u32,
    /// The next number that is expected.
    pub acknowledgement: u32,
    /// Messages from `acknowledgement` on that can be taken.
    pub window: u16,
    /// Fragments of the same message that follow.
    pub remaining: u16,
    /// Bit i: number `acknowledgement + 1 + i` has arrived.
    pub selective: u64,
}

/// Why a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is shorter than its header, or than the header says.
    Short,
    /// Its version is another one. Of such a frame, only the type is known, and where identifier and token are.
    Version {
        /// It may be an OPEN.
        is_open: bool,
    },
    /// Its type is unknown.
    Kind,
    /// Its checksum is wrong.
    Checksum,
    /// It contradicts itself.
    Fields,
}

impl Header {
    /// Returns a header whose other fields are 0.
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            flags: 0,
            length: 0,
            connection: 0,
            token: 0,
            number: 0,
            acknowledgement: 0,
            window: 0,
            remaining: 0,
            selective: 0,
        }
    }

    /// Writes the header.
    #[inline]
    pub fn encode(&self, bytes: &mut [u8; BYTES]) {
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.length.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.connection.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.token.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.acknowledgement.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.window.to_be_bytes());
        bytes[22..24].copy_from_slice(&self.remaining.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.selective.to_be_bytes());
        bytes[32..34].fill(0);
    }

    /// Reads what follows the Ethernet header. Returns the header and the data, whose checksum is right if there is one.
    ///
    /// # Errors
    /// See [`Malformed`].
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (head, rest) = bytes.split_first_chunk::<BYTES>().ok_or(Malformed::Short)?;
        if head[0] >> 4 != VERSION {
            return Err(Malformed::Version { is_open: head[0] & 0xf == Kind::Open as u8 });
        }
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let header = Self {
            kind: Kind::from_number(head[0] & 0xf).ok_or(Malformed::Kind)?,
            flags: head[1],
            length: half(2),
            connection: word(4),
            token: word(8),
            number: word(12),
            acknowledgement: word(16),
            window: half(20),
            remaining: half(22),
            selective: u64::from(word(24)) << 32 | u64::from(word(28)),
        };
        let length = usize::from(header.length);
        let data = rest.get(..length).ok_or(Malformed::Short)?;
        if header.flags & CHECKSUM != 0 {
            let sum = rest.get(length..length + checksum::BYTES).ok_or(Malformed::Short)?;
            if sum != checksum::crc(&bytes[..BYTES + length]) {
                return Err(Malformed::Checksum);
            }
        }
        Ok((header, data))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        let numbers = (any::<[u32; 4]>(), any::<[u16; 2]>(), any::<u64>(), 1..=9u8, any::<bool>());
        numbers.prop_map(|([connection, token, number, acknowledgement], [window, remaining], selective, kind, sum)| {
            let kind = Kind::from_number(kind).unwrap();
            let flags = u8::from(sum);
            Header { kind, flags, length: 0, connection, token, number, acknowledgement, window, remaining, selective }
        })
    }

    fn encode(header: &Header, data: &[u8]) -> Vec<u8> {
        let mut head = [0; BYTES];
        Header { length: data.len() as u16, ..*header }.encode(&mut head);
        let mut bytes = [&head, data].concat();
        if header.flags & CHECKSUM != 0 {
            bytes.extend(checksum::crc(&bytes));
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in header(), data: Vec<u8>, padding in 0..50usize) {
            let mut bytes = encode(&header, &data);
            bytes.extend(vec![0x55; padding]);
            let (read, read_data) = Header::decode(&bytes).unwrap();
            prop_assert_eq!(read, Header { length: data.len() as u16, ..header });
            prop_assert_eq!(read_data, &data[..]);
        }

        #[test]
        fn a_frame_that_is_cut_is_not_read(header in header(), data: Vec<u8>, cut in 1..40usize) {
            let bytes = encode(&header, &data);
            let cut = cut.min(bytes.len());
            prop_assert_eq!(Header::decode(&bytes[..bytes.len() - cut]).unwrap_err(), Malformed::Short);
        }

        #[test]
        fn a_changed_byte_is_found_by_the_checksum(header in header(), data: Vec<u8>, at: prop::sample::Index, bit in 0..8) {
            let header = Header { flags: CHECKSUM, ..header };
            let mut bytes = encode(&header, &data);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            // A change of the flags can take the checksum away: ends that have agreed on checksums refuse frames without.
            if bytes[1] & CHECKSUM != 0 {
                prop_assert!(Header::decode(&bytes).is_err());
            }
        }
    }
}
