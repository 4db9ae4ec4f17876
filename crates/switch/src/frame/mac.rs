//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

const BITS: u64 = 0xffff_ffff_ffff;

/// A 48-bit Ethernet address; its first byte on the wire is the lowest byte of the number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(u64);

impl Mac {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Mac = Mac(BITS);

    /// The destination of the frame that begins with `head`.
    #[inline]
    #[must_use]
    pub fn destination(head: &[u8; 128]) -> Mac {
        Mac(u64::from_le_bytes([head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]]) & BITS)
    }

    /// The source of the frame that begins with `head`.
    #[inline]
    #[must_use]
    pub fn source(head: &[u8; 128]) -> Mac {
        Mac(u64::from_le_bytes([head[6], head[7], head[8], head[9], head[10], head[11], head[12], head[13]]) & BITS)
    }

    /// Destination and source as they stand in the frame that begins with `head`, for comparing.
    #[inline(always)]
    #[must_use]
    pub(crate) fn both(head: &[u8; 128]) -> (u64, u32) {
        let (first, others) = head.split_first_chunk().unwrap_or((&[0; 8], &[]));
        (u64::from_ne_bytes(*first), u32::from_ne_bytes(*others.first_chunk().unwrap_or(&[0; 4])))
    }

    /// From the six bytes in wire order.
    #[must_use]
    pub fn new(b: [u8; 6]) -> Mac {
        Mac(u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], 0, 0]))
    }

    /// The six bytes in wire order.
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        let b = self.0.to_le_bytes();
        [b[0], b[1], b[2], b[3], b[4], b[5]]
    }

    /// The 48-bit number.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// From the 48-bit number; higher bits are dropped.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Mac {
        Mac(bits & BITS)
    }

    /// Group address: multicast or broadcast (IEEE 802.3 §3.2.3.1).
    #[inline]
    #[must_use]
    pub fn is_group(self) -> bool {
        self.0 & 1 != 0
    }

    /// 01:80:c2:00:00:00 to 0f: for the neighbouring bridge itself, never forwarded (IEEE 802.1Q table 8-1).
    #[inline]
    #[must_use]
    pub fn is_bridge_reserved(self) -> bool {
        self.0 & 0xf0ff_ffff_ffff == 0x0000_00c2_8001
    }

    /// An individual address of a station: not a group address, not zero.
    #[inline]
    #[must_use]
    pub fn is_station(self) -> bool {
        self.0 & 1 == 0 && self.0 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.octets();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error: the text is not six two-digit hexadecimal numbers with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMac;

impl fmt::Display for NotAMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an Ethernet address: write it as 52:54:00:00:00:01")
    }
}

impl std::error::Error for NotAMac {}

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Mac, NotAMac> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part =
                parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit())).ok_or(NotAMac)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| NotAMac)?;
        }
        if parts.next().is_some() { Err(NotAMac) } else { Ok(Mac::new(octets)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_from_a_frame_as_written_in_text() {
        let mut head = [0xee; 128];
        head[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 1]);
        head[6..12].copy_from_slice(&[2, 0xaa, 0xbb, 0xcc, 0xdd, 0xff]);
        assert_eq!(Mac::destination(&head).to_string(), "52:54:00:00:00:01");
        assert_eq!(Mac::source(&head).to_string(), "02:aa:bb:cc:dd:ff");
        assert_eq!("52:54:00:00:00:01".parse(), Ok(Mac::destination(&head)));
    }

    #[test]
    fn text_that_is_not_an_address_is_refused() {
        for bad in [
            "",
            "52:54:00:00:00",
            "52:54:00:00:00:01:02",
            "52:54:00:00:00:0g",
            "525:4:00:00:00:01",
            "+2:54:00:00:00:01",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(NotAMac), "{bad}");
        }
    }

    #[test]
    fn group_and_reserved_addresses_are_told_from_stations() {
        let mac = |text: &str| text.parse::<Mac>().expect("an address");
        assert!(Mac::BROADCAST.is_group() && !Mac::BROADCAST.is_station());
        assert!(mac("01:80:c2:00:00:0e").is_bridge_reserved());
        assert!(!mac("01:80:c2:00:00:10").is_bridge_reserved());
        assert!(!mac("00:00:00:00:00:00").is_station());
        assert!(mac("02:00:00:00:00:00").is_station());
    }
}
