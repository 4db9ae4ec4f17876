//! Non-temporal copies: copies that bypass the caches, for frames whose source and target are not in a near cache.
//! `docs/decisions/non-temporal-copies.md` has the measurements.

use crate::view::View;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Non-temporal copies, within [`with_non_temporal`].
#[derive(Debug)]
pub struct NonTemporal(());

/// Calls `work` with non-temporal copies. A non-temporal store of a whole cache line does not load the line from the
/// core that had it last, which would take longer than the rest of the copy. The line goes to memory, and its reader
/// fetches it from there. Use this for data that no core accesses soon. When this returns, the copies are ordered
/// before all later stores.
pub fn with_non_temporal<T>(work: impl FnOnce(&NonTemporal) -> T) -> T {
    // Runs also if `work` panics.
    let _fence = StoreFence;
    work(&NonTemporal(()))
}

struct StoreFence;

impl Drop for StoreFence {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: every x86-64 has this instruction.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

impl NonTemporal {
    /// Copies `source` to the beginning of `target`. Returns false, without effect, when `target` is shorter.
    #[inline]
    #[must_use]
    pub fn write(&self, target: View<'_>, source: &[u8]) -> bool {
        if source.len() > target.len() {
            return false;
        }
        // SAFETY: `source.len()` bytes are inside both. Private memory never overlaps a mapping that is only reached
        // through views.
        unsafe { copy(source.as_ptr(), target.as_ptr(), source.len()) };
        true
    }

    /// Copies all of `source` to the beginning of `target`. Returns false, without effect, when `target` is shorter. If
    /// the two overlap, the contents of `target` are unspecified afterwards.
    #[inline]
    #[must_use]
    pub fn copy(&self, target: View<'_>, source: View<'_>) -> bool {
        if source.len() > target.len() {
            return false;
        }
        // SAFETY: `source.len()` bytes are inside both.
        unsafe { copy(source.as_ptr(), target.as_ptr(), source.len()) };
        true
    }
}

/// Copies `len` bytes. Uses non-temporal stores for the cache lines that the bytes fill.
///
/// # Safety
/// `len` bytes can be read at `from` and written at `to`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the three parts add up to the whole, and the second begins at a cache line. The first and the last are
    // mostly empty; a call of `copy` for nothing would take as long as some lines, hence the conditions.
    unsafe {
        let mut at = to.align_offset(LINE).min(len);
        if at > 0 {
            std::ptr::copy(from, to, at);
        }
        while len - at >= LINE {
            copy_line(from.add(at), to.add(at));
            at += LINE;
        }
        if at < len {
            std::ptr::copy(from.add(at), to.add(at), len - at);
        }
    }
}

/// Copies a cache line with non-temporal stores.
///
/// # Safety
/// A line can be read at `from` and written at `to`, and `to` is aligned to a line.
#[inline(always)]
unsafe fn copy_line(from: *const u8, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads and writes one line, as the caller allows.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movntps [{to}], {a}",
            "movntps [{to} + 16], {b}",
            "movntps [{to} + 32], {c}",
            "movntps [{to} + 48], {d}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads and writes one line, as the caller allows.
    unsafe {
        std::ptr::copy(from, to, LINE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_bytes_of_the_source_are_copied_wherever_they_go() {
        let bytes: Vec<u8> = (0..400).map(|at| (at * 7) as u8 | 1).collect();
        let mut memory = bytes.clone();
        let from = View::private(&mut memory);
        for (offset, len) in (0..70).flat_map(|offset| [0, 1, 63, 64, 65, 127, 128, 200, 300].map(|len| (offset, len)))
        {
            let mut rooms = vec![[0u8; 512]; 2];
            let targets: Vec<View<'_>> = rooms.iter_mut().map(|room| View::private(&mut room[offset..])).collect();
            let copied = with_non_temporal(|past| {
                past.write(targets[0], &bytes[3..3 + len])
                    && past.copy(targets[1], from.sub(3, len).expect("there are as many"))
            });
            assert!(copied);
            for room in &rooms {
                assert_eq!(room[offset..][..len], bytes[3..3 + len], "{len} bytes to {offset}");
                let others = room[..offset].iter().chain(&room[offset + len..]);
                assert!(others.into_iter().all(|&byte| byte == 0), "{len} bytes to {offset}: more than these");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_not_copied() {
        let (mut long, mut short) = ([1; 129], [0; 128]);
        let target = View::private(&mut short);
        assert!(
            !with_non_temporal(|past| past.write(target, &[1; 129]) || past.copy(target, View::private(&mut long)))
        );
        assert_eq!(short, [0; 128]);
    }
}
