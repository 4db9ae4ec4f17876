//! CRC-32C of the plain layout, ones' complement sums of the segmentation layout.

/// Bytes of the checksum behind the data.
pub const BYTES: usize = 4;

/// Returns the CRC-32C (RFC 3720, B.4).
#[inline]
pub fn crc(bytes: &[u8]) -> [u8; BYTES] {
    crc32c::crc32c(bytes).to_be_bytes()
}

/// Returns the ones' complement sum of 16-bit words (RFC 1071), folded, of `bytes` and an earlier sum.
pub fn ones_sum(bytes: &[u8], earlier: u16) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let sum = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    let odd = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    let mut sum = sum + odd + u64::from(earlier);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crc_is_that_of_rfc_3720() {
        assert_eq!(crc(&[0; 32]), [0x8a, 0x91, 0x36, 0xaa]);
        assert_eq!(crc(&[0xff; 32]), [0x62, 0xa8, 0xab, 0x43]);
    }

    #[test]
    fn a_sum_is_that_of_rfc_1071() {
        assert_eq!(ones_sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
        assert_eq!(ones_sum(&[0xff, 0xff, 0x01], 0), 0x0100);
    }
}
