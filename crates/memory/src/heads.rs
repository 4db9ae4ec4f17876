//! Copies of the first bytes of many frames, with two wide stores for each short frame where the processor has stores of 32
//! bytes.

use crate::view::{self, Head, View};

/// Bytes of the widest loads and stores.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 32;

/// Writes to each target, after its first `SKIP` bytes, as many bytes of the corresponding head as fit. Writes nothing
/// to targets with room for more than [`view::HEAD_BYTES`]. Returns false, without effect, if the processor has no
/// stores that can write a short frame with two of them.
///
/// A store to a cache line that another core has read waits until that core gives up the line, and all later stores
/// wait behind it. So the first stores to all lines are made close together.
#[must_use]
pub fn write_heads<const SKIP: usize>(targets: &[View<'_>], heads: &[&Head]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX, as checked above.
        unsafe { write_wide::<SKIP>(targets, heads) };
        return true;
    }
    let _ = (targets, heads);
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn write_wide<const SKIP: usize>(targets: &[View<'_>], heads: &[&Head]) {
    let mut others = false;
    for (target, head) in targets.iter().zip(heads) {
        // For a target that is too short, the subtraction wraps to a length that is too long.
        if target.len().wrapping_sub(SKIP + WIDE) <= WIDE {
            let (from, len) = (head.0.as_ptr(), target.len() - SKIP);
            // SAFETY: `len` bytes after the first SKIP are inside the target. `len` is WIDE to twice WIDE, which a
            // head has, too. Private memory never overlaps a mapping.
            unsafe { view::copy_ends::<WIDE>(from, target.as_ptr().add(SKIP), len) };
        } else {
            target.behind(SKIP).inspect(|room| room.write_ends(head));
            others = true;
        }
    }
    if others {
        for (target, head) in targets.iter().zip(heads) {
            target.behind(SKIP).inspect(|room| _ = room.write_head(head, room.len()));
        }
    }
}

/// Copies the first bytes of each source to the corresponding head, as [`View::read_head`] does for the whole source.
pub fn read_heads(sources: &[View<'_>], heads: &mut [Head]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX, as checked above.
        unsafe { read_wide(sources, heads) };
        return;
    }
    sources.iter().zip(heads).for_each(|(source, head)| _ = source.read_head(source.len(), head));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn read_wide(sources: &[View<'_>], heads: &mut [Head]) {
    for (source, head) in sources.iter().zip(heads) {
        let (from, len) = (source.as_ptr(), source.len());
        // For a source that is too short, the subtraction wraps to a length that is too long.
        if len.wrapping_sub(WIDE) <= WIDE {
            let to = head.0.as_mut_ptr();
            // SAFETY: the first and the last WIDE of the `len` bytes are inside the source and inside the head. A byte
            // that is read twice has the value of the second read, which overwrites the first. The processor has AVX:
            // this function requires it.
            unsafe {
                copy_wide(from, to);
                copy_wide(from.add(len - WIDE), to.add(len - WIDE));
            }
        } else {
            let _ = source.read_head(len, head);
        }
    }
}

/// Copies [`WIDE`] bytes out of memory that others write, reading every byte once: the compiler cannot look into the
/// assembly, so it cannot read the source again later.
///
/// # Safety
/// WIDE bytes can be read at `from` and written at `to`, and the two do not overlap. The processor has AVX.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx")]
unsafe fn copy_wide(from: *const u8, to: *mut u8) {
    // SAFETY: reads and writes as the caller allows, at any alignment.
    unsafe {
        std::arch::asm!(
            "vmovups {a}, [{from}]",
            "vmovups [{to}], {a}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(ymm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::HEAD_BYTES;

    #[test]
    fn heads_are_read_as_far_as_there_are_bytes() {
        let mut memory: Vec<[u8; 256]> =
            (0..200usize).map(|seed| std::array::from_fn(|at| (seed + 3 * at) as u8 | 1)).collect();
        let bytes = memory.clone();
        let sources: Vec<View<'_>> =
            memory.iter_mut().enumerate().map(|(len, bytes)| View::private(&mut bytes[7..7 + len])).collect();
        let mut heads = vec![Head([0; HEAD_BYTES]); sources.len()];
        read_heads(&sources, &mut heads);
        for (len, (bytes, head)) in bytes.iter().zip(&heads).enumerate() {
            let read = len.min(HEAD_BYTES);
            assert_eq!(head.0[..read], bytes[7..7 + read], "{len}");
            assert!(head.0[read..].iter().all(|&byte| byte == 0), "{len}: more than there is");
        }
    }

    #[test]
    fn heads_are_written_as_far_as_there_is_room_and_nowhere_else() {
        let heads: Vec<Head> =
            (0..160usize).map(|seed| Head(std::array::from_fn(|at| (seed + 3 * at) as u8 | 1))).collect();
        let mut memory = vec![[0u8; 256]; heads.len()];
        let targets: Vec<View<'_>> =
            memory.iter_mut().enumerate().map(|(len, bytes)| View::private(&mut bytes[7..7 + len])).collect();
        let can = write_heads::<12>(&targets, &heads.iter().collect::<Vec<_>>());
        for (len, (bytes, head)) in memory.iter().zip(&heads).enumerate() {
            let room = len.saturating_sub(12);
            let written = if room > HEAD_BYTES || !can { 0 } else { room };
            assert_eq!(bytes[19..19 + written], head.0[..written], "{len}");
            assert!(bytes[..19].iter().chain(&bytes[19 + written..]).all(|&byte| byte == 0), "{len}");
        }
    }
}
