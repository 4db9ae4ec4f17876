//! Whether many frames begin alike.

use crate::Pieces;

/// Bytes that are compared.
const BEGINNING: usize = 12;
/// Bytes that are read of each.
const READ: usize = 16;

/// As many bytes in one register, where there are such: every x86-64 has.
#[cfg(target_arch = "x86_64")]
type Wide = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Wide = u128;

/// Compares how pieces begin, without a branch for each.
#[derive(Debug)]
pub struct Alike<'m> {
    pieces: Pieces<'m>,
    beginning: Wide,
    difference: Wide,
}

impl<'m> Alike<'m> {
    /// With what they are to begin; `None` where pieces have fewer than 16 bytes.
    #[must_use]
    pub fn new(pieces: Pieces<'m>, beginning: &[u8; BEGINNING]) -> Option<Alike<'m>> {
        let mut wanted = [0; READ];
        wanted[..BEGINNING].copy_from_slice(beginning);
        let beginning = wide(u128::from_le_bytes(wanted));
        (pieces.size() >= READ).then_some(Alike { pieces, beginning, difference: wide(0) })
    }

    /// Compares piece `index`; false, with nothing done, when there is none.
    #[inline(always)]
    #[must_use]
    pub fn add(&mut self, index: usize) -> bool {
        let Some(piece) = self.pieces.get(index) else { return false };
        // SAFETY: it has READ bytes, as `new` has seen.
        self.difference = unsafe { compare(piece.as_ptr(), self.beginning, self.difference) };
        true
    }

    /// Whether all that were compared since the last time begin so.
    #[inline(always)]
    #[must_use]
    pub fn are_all(&mut self) -> bool {
        let difference = std::mem::replace(&mut self.difference, wide(0));
        narrow(difference) << (8 * (READ - BEGINNING)) == 0
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
    use crate::View;

    const SIZE: usize = 20;

    /// The answer for five pieces that begin alike, with another byte at `at`.
    fn with_another_at(at: usize) -> bool {
        let mut bytes: Vec<u8> =
            (0..5).flat_map(|piece| (0..SIZE).map(move |at| at as u8 | (piece & usize::from(at > 11)) as u8)).collect();
        bytes[at] ^= 0x10;
        let beginning = std::array::from_fn(|at| at as u8);
        let pieces = View::private(&mut bytes).pieces(SIZE).expect("pieces");
        let mut alike = Alike::new(pieces, &beginning).expect("long enough");
        assert!((0..5).all(|index| alike.add(index)));
        let are = alike.are_all();
        let first_other = if at / SIZE == 0 { 1 } else { 0 };
        assert!(!alike.add(5) && alike.add(first_other) && alike.are_all(), "it is forgotten");
        are
    }

    #[test]
    fn pieces_that_begin_otherwise_are_told_by_any_byte_of_their_beginning_and_no_other() {
        for at in 0..5 * SIZE {
            assert_eq!(with_another_at(at), at % SIZE >= 12, "{at}");
        }
    }

    #[test]
    fn short_pieces_are_not_read() {
        assert!(Alike::new(View::private(&mut [0; 60]).pieces(15).expect("pieces"), &[0; 12]).is_none());
    }
}
