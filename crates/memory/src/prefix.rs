//! Comparison of the first bytes of many frames, without a branch for each frame.

use crate::view::View;

/// Bytes that are compared.
const BEGINNING: usize = 12;
/// Bytes that are read of each view.
const READ: usize = 16;

/// A vector register of 16 bytes, which every x86-64 has.
#[cfg(target_arch = "x86_64")]
type Wide = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Wide = u128;

/// Compares the beginnings of views, without a branch for each view.
#[derive(Debug)]
pub struct PrefixComparer {
    beginning: Wide,
    difference: Wide,
    /// The bits that are set in the first word of any header.
    headers: u64,
}

impl PrefixComparer {
    /// Compares with `beginning`.
    #[inline(always)]
    #[must_use]
    pub fn new(beginning: &[u8; BEGINNING]) -> PrefixComparer {
        let mut wanted = [0; READ];
        wanted[..BEGINNING].copy_from_slice(beginning);
        PrefixComparer { beginning: wide(u128::from_le_bytes(wanted)), difference: wide(0), headers: 0 }
    }

    /// Compares the beginning of a view. Returns false, without effect, when the view has fewer than 16 bytes.
    #[inline(always)]
    #[must_use]
    pub fn add(&mut self, view: View<'_>) -> bool {
        if view.len() < READ {
            return false;
        }
        // SAFETY: the view has at least READ bytes.
        self.difference = unsafe { compare(view.as_ptr(), self.beginning, self.difference) };
        true
    }

    /// Compares the bytes after the first `HEADER` bytes (8 or more) of a view. Returns false, without effect, when
    /// fewer than 16 bytes follow.
    #[inline(always)]
    #[must_use]
    pub fn add_after_header<const HEADER: usize>(&mut self, view: View<'_>) -> bool {
        const { assert!(HEADER >= 8, "the first word is in the header") };
        if view.len() < HEADER + READ {
            return false;
        }
        // SAFETY: the view has at least READ bytes after HEADER.
        self.difference = unsafe { compare(view.as_ptr().wrapping_add(HEADER), self.beginning, self.difference) };
        self.headers |= view.first_word().unwrap_or_default();
        true
    }

    /// Returns true if all views compared since the last call have the beginning.
    #[inline(always)]
    #[must_use]
    pub fn all_match(&mut self) -> bool {
        let difference = std::mem::replace(&mut self.difference, wide(0));
        narrow(difference) << (8 * (READ - BEGINNING)) == 0
    }

    /// Returns the bits that were set in the first word ([`View::first_word`]) of any header since the last call.
    #[inline(always)]
    #[must_use]
    pub fn headers(&mut self) -> u64 {
        std::mem::take(&mut self.headers)
    }
}

#[inline(always)]
fn wide(bytes: u128) -> Wide {
    // SAFETY: both types are 16 bytes, and every value is valid.
    unsafe { std::mem::transmute::<u128, Wide>(bytes) }
}

#[inline(always)]
fn narrow(bytes: Wide) -> u128 {
    // SAFETY: both types are 16 bytes, and every value is valid.
    unsafe { std::mem::transmute::<Wide, u128>(bytes) }
}

/// Reads 16 bytes once, from memory that others may write. Returns `difference` with the bits added in which these
/// bytes differ from `wanted`.
///
/// # Safety
/// [`READ`] bytes can be read at `from`.
#[inline(always)]
unsafe fn compare(from: *const u8, wanted: Wide, difference: Wide) -> Wide {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads only what the caller allows, at any alignment. The compiler cannot repeat the read.
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
    // SAFETY: reads only what the caller allows, each byte once.
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

    /// Compares five pieces with equal beginnings, except for another byte at `at` in one of them. Returns the result
    /// without and with a header before each, and the bits of the headers.
    fn with_another_at(at: usize) -> (bool, bool, u64) {
        let mut bytes: Vec<u8> =
            (0..5).flat_map(|piece| (0..SIZE).map(move |at| (at as u8 & 15) | (u8::from(at > 21) * piece))).collect();
        bytes[at] ^= 0x10;
        let whole = View::private(&mut bytes);
        let pieces: Vec<View<'_>> = (0..5).filter_map(|piece| whole.sub(piece * SIZE, SIZE)).collect();
        let mut alike = PrefixComparer::new(&std::array::from_fn(|at| at as u8));
        let mut behind = PrefixComparer::new(&std::array::from_fn(|at| (HEADER + at) as u8 & 15));
        assert!(pieces.iter().all(|piece| alike.add(*piece) && behind.add_after_header::<HEADER>(*piece)));
        let answers = (alike.all_match(), behind.all_match(), behind.headers().to_le());
        let first_other = pieces[usize::from(at / SIZE == 0)];
        assert!(alike.add(first_other) && alike.all_match(), "it is forgotten");
        assert!(behind.add_after_header::<HEADER>(first_other) && behind.all_match(), "it is forgotten");
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
        let mut alike = PrefixComparer::new(&[0; 12]);
        assert!(
            !alike.add(View::private(&mut [0; 15])) && !alike.add_after_header::<HEADER>(View::private(&mut [0; 25]))
        );
    }
}
