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

/// Bytes that are added at once.
const BLOCK: usize = 64;
/// With fewer blocks, wider instructions do not pay.
const FEW_BLOCKS: usize = 2;

/// # Safety
/// `len` bytes can be read at `start`.
#[inline]
unsafe fn sum(mut start: *const u8, len: usize) -> u16 {
    let blocks = len / BLOCK;
    let mut total = match blocks {
        0 => 0,
        // SAFETY: as many blocks are inside.
        _ => unsafe { sum_blocks(start, blocks) },
    };
    // SAFETY: the blocks are inside.
    start = unsafe { start.add(blocks * BLOCK) };
    let mut left = len % BLOCK;
    while left >= 8 {
        // SAFETY: at least 8 bytes are left.
        let word = unsafe { start.cast::<u64>().read_unaligned() };
        total += (word & 0xffff_ffff) + (word >> 32);
        // SAFETY: as above.
        start = unsafe { start.add(8) };
        left -= 8;
    }
    if left & 4 != 0 {
        // SAFETY: at least 4 bytes are left.
        total += u64::from(unsafe { start.cast::<u32>().read_unaligned() });
        // SAFETY: as above.
        start = unsafe { start.add(4) };
    }
    if left & 2 != 0 {
        // SAFETY: at least 2 bytes are left.
        total += u64::from(unsafe { start.cast::<u16>().read_unaligned() });
        // SAFETY: as above.
        start = unsafe { start.add(2) };
    }
    if left & 1 != 0 {
        // SAFETY: one byte is left.
        total += u64::from(u16::from_ne_bytes([unsafe { *start }, 0]));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sum of all 32-bit words of `blocks` blocks of [`BLOCK`] bytes. A word is congruent to the sum of its halves modulo 2^16 - 1.
///
/// # Safety
/// The blocks can be read at `start`.
#[inline(never)]
unsafe fn sum_blocks(start: *const u8, blocks: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if blocks > FEW_BLOCKS && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the rest is the caller's promise.
        return unsafe { sum_blocks_avx2(start, blocks) };
    }
    // SAFETY: the caller's promise.
    unsafe { add_blocks(start, blocks) }
}

/// # Safety
/// The processor has AVX2. The blocks can be read at `start`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn sum_blocks_avx2(start: *const u8, blocks: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { add_blocks(start, blocks) }
}

/// # Safety
/// The blocks can be read at `start`.
#[inline(always)]
unsafe fn add_blocks(start: *const u8, blocks: usize) -> u64 {
    // Independent sums of 64 bits, which the compiler keeps in vectors: checked additions would prevent that. None overflows, as no
    // memory has 2^32 blocks.
    let mut parts = [0u64; BLOCK / 4];
    let words = start.cast::<[u32; BLOCK / 4]>();
    for block in 0..blocks {
        // SAFETY: the block is inside.
        let words = unsafe { words.add(block).read_unaligned() };
        for (part, word) in parts.iter_mut().zip(words) {
            *part = part.wrapping_add(u64::from(word));
        }
    }
    // Each is below 2^63, and their sum below 2^64 once their upper halves are folded.
    parts.into_iter().fold(0, |total, part| total.wrapping_add((part & 0xffff_ffff) + (part >> 32)))
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
