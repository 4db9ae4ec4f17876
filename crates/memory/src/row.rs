//! Copying the first bytes of many frames.

use crate::{Head, View};

/// Copies to each target, behind its first `SKIP` bytes, as many bytes of the head beside it as there is room for; nothing where
/// that is more than [`crate::HEAD_BYTES`]. False, with nothing done, where the processor has no stores that are wide enough
/// to write short frames with two each.
///
/// A store to a line that another core has read waits until that core has given it up, and later stores wait behind it: so
/// the first stores to all lines come close together.
#[must_use]
pub fn write_heads<const SKIP: usize>(targets: &[View<'_>], heads: &[&Head]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has it.
        unsafe { write_wide::<SKIP>(targets, heads) };
        return true;
    }
    let _ = (targets, heads);
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn write_wide<const SKIP: usize>(targets: &[View<'_>], heads: &[&Head]) {
    const WIDE: usize = 32;
    let mut others = false;
    for (target, head) in targets.iter().zip(heads) {
        // A target too short for that wraps around, and is then too long.
        if target.len().wrapping_sub(SKIP + WIDE) <= WIDE {
            let (from, len) = (head.0.as_ptr(), target.len() - SKIP);
            // SAFETY: `len` bytes behind the first SKIP are inside the target, and it has WIDE to twice as many, which a head
            // has, too; private memory never overlaps a mapping.
            unsafe { crate::view::copy_ends::<WIDE>(from, target.as_ptr().add(SKIP), len) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEAD_BYTES;

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
