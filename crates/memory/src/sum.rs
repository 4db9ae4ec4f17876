//! The sum of the internet checksum (RFC 1071).

use crate::view::View;

impl View<'_> {
    /// Returns the ones' complement sum of the bytes: see [`ones_sum`]. Bytes that change meanwhile count with the old
    /// or the new value.
    #[inline]
    #[must_use]
    pub fn ones_sum(&self) -> u16 {
        // SAFETY: the view's bytes are mapped and readable. Nothing is assumed of their values.
        unsafe { sum(std::hint::black_box(self.as_ptr().cast_const()), self.len()) }
    }
}

/// Returns the ones' complement sum of `bytes` as 16-bit words in this machine's byte order. A zero byte is added to an
/// odd length.
#[inline]
#[must_use]
pub fn ones_sum(bytes: &[u8]) -> u16 {
    // SAFETY: the bytes of a slice can be read.
    unsafe { sum(bytes.as_ptr(), bytes.len()) }
}

/// # Safety
/// `len` bytes can be read at `start`.
unsafe fn sum(mut start: *const u8, mut len: usize) -> u16 {
    // Four independent sums, which do not wait for each other. A carry out of 64 bits counts as 1 in 16 bits, too: 2^64
    // = 1 (mod 2^16 - 1).
    let mut parts = [0u64; 4];
    while len >= 32 {
        for part in &mut parts {
            // SAFETY: at least 8 bytes are left.
            let word = unsafe { start.cast::<u64>().read_unaligned() };
            let (sum, carry) = part.overflowing_add(word);
            *part = sum + u64::from(carry);
            // SAFETY: at least 8 bytes are left.
            start = unsafe { start.add(8) };
        }
        len -= 32;
    }
    let mut total: u128 = parts.iter().copied().map(u128::from).sum();
    while len > 0 {
        let bytes = len.min(8);
        let mut word = [0; 8];
        // SAFETY: at least `bytes` bytes are left.
        unsafe {
            std::ptr::copy_nonoverlapping(start, word.as_mut_ptr(), bytes);
            start = start.add(bytes);
        }
        total += u128::from(u64::from_ne_bytes(word));
        len -= bytes;
    }
    let mut sum = (total as u64 as u128) + (total >> 64);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::ones_sum;
    use crate::Mapping;

    fn by_the_book(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u32::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        bytes.chunks(2).map(word).fold(0, |sum, word| {
            let sum = sum + word;
            (sum & 0xffff) + (sum >> 16)
        }) as u16
    }

    #[test]
    fn the_sum_is_that_of_the_definition_at_every_length_and_alignment() {
        let memory = Mapping::private(4096).expect("memory");
        for fill in [0, 1, 0x80, 0xfe, 0xff] {
            let bytes: Vec<u8> = (0..4096u32).map(|n| if fill == 1 { ((n * n) >> 3) as u8 } else { fill }).collect();
            assert!(memory.whole().write(&bytes));
            for start in 0..9 {
                for len in (0..140).chain([1448, 1449, 4000]) {
                    let part = &bytes[start..start + len];
                    assert_eq!(ones_sum(part), by_the_book(part), "{len} bytes of {fill} from {start}");
                    assert_eq!(memory.view(start, len).expect("inside").ones_sum(), ones_sum(part));
                }
            }
        }
    }
}
