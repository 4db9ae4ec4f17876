//! The layout of a test frame, shared by the sender ([`crate::Frames`]) and the receiver ([`crate::Checker`]).
//!
//! ```text
//! 60 bytes and more                            14 to 59 bytes
//!  0  Ethernet header, type 0x0800              0  Ethernet header, type 0x88B5
//! 14  IPv4 header
//! 34  UDP header, destination port 9
//! 42  magic     u16                            14  magic
//! 44  stream    u16   one per sender           16  stream
//! 46  flow      u16                            18  flow
//! 48  sequence  u64   from 0, per flow         20  sequence
//! 56  check     u32                            28  check
//! 60  payload                                  32  payload
//! ```
//!
//! All numbers are in network byte order. `check` covers every byte before it and the length of the frame. The payload is a
//! slice of one fixed pseudo-random pattern; stream, flow and sequence determine where the slice starts. The receiver
//! therefore knows each byte without help, and a byte from another frame or another place shows.
//!
//! A frame too short for a field ends where it ends: below 32 bytes there is no check, below 28 no sequence (so no loss,
//! order or duplicates), below 20 no stream and flow, below 16 no magic: the private Ethernet type alone identifies the
//! frame.

use std::sync::LazyLock;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// The longest frame, without FCS.
pub const MAX_FRAME: usize = 65_535;
/// The shortest frame: an Ethernet header.
pub const MIN_FRAME: usize = ETHERNET;
/// Offset of the test header in a UDP frame.
pub const UDP_TEST: usize = 42;
/// Bytes of the test header.
pub const TEST: usize = 18;
/// The shortest frame that is sent as UDP: all headers and no payload.
pub const UDP_FRAME: usize = UDP_TEST + TEST;
/// Offset of the sequence number in the test header.
pub const SEQUENCE: usize = 6;
/// Offset of the checksum in the test header.
pub const CHECK: usize = 14;
/// Bytes of the longest prefix before a sequence number.
pub const PREFIX: usize = UDP_TEST + SEQUENCE;

pub const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Local experimental EtherType 1 (IEEE 802-2014, section 9.2.4).
pub const TYPE_LOCAL: [u8; 2] = [0x88, 0xb5];
/// The discard service (RFC 863).
pub const UDP_PORT: [u8; 2] = [0, 9];

/// The payload starts at the same offset of the pattern in every frame.
pub const MAGIC_CONSTANT: [u8; 2] = *b"Rw";
/// The payload starts at the offset that [`pattern_start`] returns.
pub const MAGIC_VARYING: [u8; 2] = *b"RW";

/// Offsets of the pattern at which a payload may start. The slices of short payloads stay in the first-level cache.
const STARTS: usize = 4096;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the source of all payloads.
pub fn pattern() -> &'static [u8] {
    static PATTERN: LazyLock<Box<[u8]>> = LazyLock::new(|| {
        let word = |index: u64| mix(index.wrapping_add(1).wrapping_mul(ODD)).to_le_bytes();
        (0..((MAX_FRAME + STARTS).div_ceil(8)) as u64).flat_map(word).collect()
    });
    &PATTERN
}

/// Returns the offset in [`pattern`] at which the payload of a frame starts.
#[inline]
pub fn pattern_start(stream: u16, flow: u16, sequence: u64) -> usize {
    // Fibonacci hashing: frames that are a whole ring (a power of two) apart start at different offsets.
    let frame = (u64::from(stream) << 48 ^ u64::from(flow) << 32).wrapping_add(sequence);
    (frame.wrapping_mul(ODD) >> 52) as usize
}

/// Sums the bytes before the sequence number: the first half of [`check`]. A shorter prefix is padded with zeroes.
///
/// Each word is multiplied with an odd factor of its own: a change in one word always changes the sum, and the six
/// products are independent of each other.
#[inline]
pub fn prefix_sum(prefix: &[u8; PREFIX]) -> u64 {
    let (words, _) = prefix.as_chunks::<8>();
    let mut sum = 0u64;
    for (index, word) in words.iter().enumerate() {
        let factor = ODD.rotate_left(7 * index as u32) | 1;
        sum = sum.wrapping_add(u64::from_le_bytes(*word).wrapping_mul(factor));
    }
    sum
}

/// Returns the checksum of a frame of `len` bytes.
#[inline]
pub fn check(prefix_sum: u64, sequence: u64, len: usize) -> u32 {
    let sum = prefix_sum.wrapping_add(sequence.wrapping_mul(ODD.rotate_left(50) | 1));
    let folded = (sum ^ sum >> 32).wrapping_add(len as u64).wrapping_mul(ODD);
    (folded >> 32) as u32
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Returns the Internet checksum (RFC 1071) of an even number of bytes.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_one_byte_changes_the_check() {
        let prefix: [u8; PREFIX] = std::array::from_fn(|index| (index * 7) as u8);
        let good = check(prefix_sum(&prefix), 5, 60);
        for place in 0..PREFIX {
            for flip in 1..=255 {
                let mut other = prefix;
                other[place] ^= flip;
                assert_ne!(check(prefix_sum(&other), 5, 60), good, "byte {place} flipped by {flip:#x}");
            }
        }
        assert_ne!(check(prefix_sum(&prefix), 6, 60), good);
        assert_ne!(check(prefix_sum(&prefix), 5, 61), good);
    }

    #[test]
    fn payloads_a_ring_apart_start_at_different_places() {
        for ring in (0..17).map(|bits| 1u64 << bits) {
            for sequence in 0..1000 {
                assert_ne!(pattern_start(9, 1, sequence), pattern_start(9, 1, sequence + ring), "ring of {ring}");
            }
        }
    }

    #[test]
    fn the_checksum_of_a_known_header_is_right() {
        // The worked example of the IPv4 header in common textbooks: 192.168.0.1 to 192.168.0.199, UDP, 115 bytes.
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(internet_checksum(&header), 0xb861);
    }
}
