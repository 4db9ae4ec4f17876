//! Comparison of the first bytes of many frames, without a branch for each frame.

use crate::View;

/// Bytes that are compared.
const BEGINNING: usize = 12;
/// Bytes that are read of each.
const READ: usize = 16;

/// As many bytes in one register, where there are such: every x86-64 has.
#[cfg(target_arch = "x86_64")]
type Wide = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Wide = u128;

/// Compares how views begin, without a branch for each.
#[derive(Debug)]
pub struct Alike {
    beginning: Wide,
    difference: Wide,
    /// All bits of the first words of the headers.
    headers: u64,
}

impl Alike {
    /// With what they are to begin.
    #[inline(always)]
    #[must_use]
    pub fn new(beginning: &[u8; BEGINNING]) -> Alike {
        let mut wanted = [0; READ];
        wanted[..BEGINNING].copy_from_slice(beginning);
        Alike { beginning: wide(u128::from_le_bytes(wanted)), difference: wide(0), headers: 0 }
    }

    /// Compares a view; false, with nothing done, when it has fewer than 16 bytes.
    #[inline(always)]
    #[must_use]
    pub fn add(&mut self, view: View<'_>) -> bool {
        if view.len() < READ {
            return false;
        }
        // SAFETY: it has READ bytes.
        self.difference = unsafe { compare(view.as_ptr(), self.beginning, self.difference) };
        true
    }

    /// Compares what is behind the first `HEADER` bytes (8 or more) of a view; false, with nothing done, when that is fewer
    /// than 16 bytes.
    #[inline(always)]
    #[must_use]
    pub fn add_behind<const HEADER: usize>(&mut self, view: View<'_>) -> bool {
        const { assert!(HEADER >= 8, "the first word is in the header") };
        if view.len() < HEADER + READ {
            return false;
        }
        // SAFETY: it has READ bytes behind HEADER.
        self.difference = unsafe { compare(view.as_ptr().wrapping_add(HEADER), self.beginning, self.difference) };
        self.headers |= view.first_word().unwrap_or_default();
        true
    }

    /// Whether all that were compared since the last time begin so.
    #[inline(always)]
    #[must_use]
    pub fn are_all(&mut self) -> bool {
        let difference = std::mem::replace(&mut self.difference, wide(0));
        narrow(difference) << (8 * (READ - BEGINNING)) == 0
    }

    /// The bits that any of the headers had in its first word ([`View::first_word`]) since the last time.
    #[inline(always)]
    #[must_use]
    pub fn headers(&mut self) -> u64 {
        std::mem::take(&mut self.headers)
    }
}

#[inline(always)]
fn wide(bytes: u128) -> Wide {
    // SAFETY: both are 16 bytes of any value.
    unsafe { std::mem::transmute::<u128, Wide>(bytes) }
}

#[inline(always)]
fn narrow(bytes: Wide) -> u128 {
    // SAFETY: both are 16 bytes of any value.
    unsafe { std::mem::transmute::<Wide, u128>(bytes) }
}

/// `difference`, and the bits in which bytes that others write, read once, are not as `wanted`.
///
/// # Safety
/// [`READ`] bytes can be read at `from`.
#[inline(always)]
unsafe fn compare(from: *const u8, wanted: Wide, difference: Wide) -> Wide {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads what the caller allows; any alignment will do, and the compiler cannot repeat it.
    unsafe {
        let mut both = difference;
        std::arch::asm!(
            "movdqu {read}, [{from}]",
            "pxor {read}, {wanted}",
            "por {both}, {read}",
            from = in(reg) from,
            read = out(xmm_reg) _,
            wanted = in(xmm_reg) wanted,
            both = inout(xmm_reg) both,
            options(nostack, preserves_flags, readonly)
        );
        both
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads what the caller allows, once.
    unsafe {
        let bytes: [u8; READ] = std::array::from_fn(|at| from.add(at).read_volatile());
        difference | (u128::from_le_bytes(bytes) ^ wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 30;
    const HEADER: usize = 10;

    /// The answers for five pieces that begin alike, the same with a header before each, with another byte at `at`; and the
    /// headers.
    fn with_another_at(at: usize) -> (bool, bool, u64) {
        let mut bytes: Vec<u8> =
            (0..5).flat_map(|piece| (0..SIZE).map(move |at| (at as u8 & 15) | (u8::from(at > 21) * piece))).collect();
        bytes[at] ^= 0x10;
        let whole = View::private(&mut bytes);
        let pieces: Vec<View<'_>> = (0..5).filter_map(|piece| whole.sub(piece * SIZE, SIZE)).collect();
        let mut alike = Alike::new(&std::array::from_fn(|at| at as u8));
        let mut behind = Alike::new(&std::array::from_fn(|at| (HEADER + at) as u8 & 15));
        assert!(pieces.iter().all(|piece| alike.add(*piece) && behind.add_behind::<HEADER>(*piece)));
        let answers = (alike.are_all(), behind.are_all(), behind.headers().to_le());
        let first_other = pieces[usize::from(at / SIZE == 0)];
        assert!(alike.add(first_other) && alike.are_all(), "it is forgotten");
        assert!(behind.add_behind::<HEADER>(first_other) && behind.are_all(), "it is forgotten");
        assert_eq!(behind.headers().to_le(), 0x07_06_05_04_03_02_01_00);
        answers
    }

    #[test]
    fn pieces_that_begin_otherwise_are_told_by_any_byte_of_their_beginning_and_no_other() {
        for at in 0..5 * SIZE {
            let place = at % SIZE;
            let header = 0x07_06_05_04_03_02_01_00 | if place < 8 { 0x10 << (8 * place) } else { 0 };
            assert_eq!(with_another_at(at), (place >= 12, !(10..22).contains(&place), header), "{at}");
        }
    }

    #[test]
    fn short_pieces_are_not_read() {
        let mut alike = Alike::new(&[0; 12]);
        assert!(!alike.add(View::private(&mut [0; 15])) && !alike.add_behind::<HEADER>(View::private(&mut [0; 25])));
    }
}
