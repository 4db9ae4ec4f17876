//! Registers that are memory with a mask: the bits that a write keeps, and the values after a reset.

use std::sync::OnceLock;

use super::kept::{Reader, Writer};
use super::offsets::*;
use super::settings::Model;

/// End of the registers, in bytes. The memory of the adapter after them is accessed only by diagnostic tests.
const END: u32 = 0x6000;

/// Registers from `first` up to `end`, `step` bytes apart. Of a written value they keep the bits of `mask`.
struct Rule {
    first: u32,
    end: u32,
    step: u32,
    mask: u32,
    reset: u32,
}

const fn one(offset: u32, mask: u32, reset: u32) -> Rule {
    Rule { first: offset, end: offset + 4, step: 4, mask, reset }
}

const fn all(first: u32, end: u32) -> Rule {
    Rule { first, end, step: 4, mask: !0, reset: 0 }
}

/// Registers of both models (SDM 13.4 to 13.6).
const COMMON: &[Rule] = &[
    one(CTRL, !(CTRL_RST | CTRL_PHY_RST), CTRL_FD | CTRL_SPEED_1000),
    one(CTRL_EXT, !EXT_EE_RST, 0),
    one(FLA, 0x3f, 0),
    one(FCAL, !0, 0),
    one(FCAH, 0xffff, 0),
    one(FCT, 0xffff, 0),
    one(VET, 0xffff, 0),
    one(RCTL, 0x06df_bffe, 0),
    one(FCTTV, 0xffff, 0),
    one(TXCW, 0xc000_ffff, 0),
    one(TCTL, 0x17ff_fffe, 0),
    one(TIPG, 0x3fff_ffff, 0x0060_2008),
    one(AIT, 0xffff, 0),
    one(LEDCTL, !0, 0x0706_8302),
    one(PBA, 0xff, 0x30),
    one(FCRTL, 0x8000_fff8, 0),
    one(FCRTH, 0x8000_fff8, 0),
    one(RDBAL, 0xffff_fff0, 0),
    one(RDBAH, !0, 0),
    one(RDLEN, 0x000f_ff80, 0),
    one(RDH, 0xffff, 0),
    one(RDT, 0xffff, 0),
    one(RDTR, 0xffff, 0),
    one(RXDCTL, 0x013f_3f3f, 0x0001_0000),
    one(RADV, 0xffff, 0),
    one(RSRPD, 0xfff, 0),
    one(TXDMAC, 1, 0),
    one(TDBAL, 0xffff_fff0, 0),
    one(TDBAH, !0, 0),
    one(TDLEN, 0x000f_ff80, 0),
    one(TDH, 0xffff, 0),
    one(TDT, 0xffff, 0),
    one(TIDV, 0xffff, 0),
    one(TXDCTL, !0, 0),
    one(TADV, 0xffff, 0),
    one(TSPMT, !0, 0x0100_0400),
    one(RXCSUM, 0xb7ff, 0),
    all(MTA, MTA_END),
    Rule { first: RA, end: RA_END, step: 8, mask: !0, reset: 0 },
    Rule { first: RA + 4, end: RA_END, step: 8, mask: 0x8003_ffff, reset: 0 },
    all(VFTA, VFTA_END),
    one(WUC, 0x1f, 0),
    one(WUFC, 0x000f_80ff, 0),
    one(MANC, !0, 0),
    all(0x5838, 0x5860),
    all(0x5880, 0x5890),
    all(FFLT, FFLT + 0x20),
];

/// Registers in which the 82574L differs (DS 10.2).
const E1000E: &[Rule] = &[
    one(RCTL, 0x7edf_bffe, 0),
    one(TCTL_EXT, !0, 0),
    one(EXTCNF_CTRL, !0, 0),
    one(EXTCNF_SIZE, !0, 0),
    one(PHY_CTRL, !0, 0),
    one(PBA, 0xff, 0x14),
    one(PBS, !0, 0),
    one(PBA_ECC, !0, 0),
    one(PSRCTL, 0x3f3f_3f7f, 0x0004_0402),
    one(TARC, !0, 0x403),
    one(TARC + SECOND, !0, 0x403),
    one(TDBAL1, 0xffff_fff0, 0),
    one(TDBAH1, !0, 0),
    one(TDLEN1, 0x000f_ff80, 0),
    one(TDH1, 0xffff, 0),
    one(TDT1, 0xffff, 0),
    one(TXDCTL + SECOND, !0, 0),
    one(RDBAL + SECOND, 0xffff_fff0, 0),
    one(RDBAH + SECOND, !0, 0),
    one(RDLEN + SECOND, 0x000f_ff80, 0),
    one(RDH + SECOND, 0xffff, 0),
    one(RDT + SECOND, 0xffff, 0),
    one(RXDCTL + SECOND, 0x013f_3f3f, 0x0001_0000),
    one(RFCTL, !0, 0),
    one(MRQC, !0, 0),
    one(MANC2H, !0, 0),
    all(MDEF, MDEF + 0x20),
    one(GCR, !0, 0),
    one(FACTPS, 0, 0),
    one(FWSM, 0, 0),
    one(SWSM, !0, 0),
    one(SWSM2, !0, 0),
    one(SW_FW_SYNC, !0, 0),
    one(GCR2, !0, 0),
    all(RETA, RETA + 0x80),
    all(RSSRK, RSSRK + 0x28),
];

/// The rules of a model, resolved to a mask and a reset value for each word.
#[derive(Debug)]
struct Table {
    masks: Box<[u32]>,
    resets: Box<[u32]>,
}

impl Table {
    fn of(model: Model) -> &'static Table {
        static TABLES: [OnceLock<Table>; 2] = [const { OnceLock::new() }; 2];
        let is_new = model == Model::E1000e;
        TABLES[usize::from(is_new)].get_or_init(|| Table::new(if is_new { E1000E } else { &[] }))
    }

    fn new(more: &[Rule]) -> Table {
        let zeroes = || vec![0; (END / 4) as usize].into_boxed_slice();
        let mut table = Table { masks: zeroes(), resets: zeroes() };
        for rule in COMMON.iter().chain(more) {
            for offset in (rule.first..rule.end).step_by(rule.step as usize) {
                let place = (offset / 4) as usize;
                (table.masks[place], table.resets[place]) = (rule.mask, rule.reset);
            }
        }
        table
    }
}

/// The values of the registers outside the ring pages. The ring pages are memory that a front end may map.
#[derive(Debug)]
pub(super) struct Registers {
    words: Box<[u32]>,
    table: &'static Table,
    /// What [`Registers::save`] has written, if it would write the same again.
    saved: Option<Vec<u8>>,
}

impl Registers {
    pub(super) fn new(model: Model) -> Registers {
        let table = Table::of(model);
        Registers { words: table.resets.clone(), table, saved: None }
    }

    /// Returns the bits of a write that are kept: 0 where there is no register.
    pub(super) fn mask(&self, offset: u32) -> u32 {
        self.table.masks.get((offset / 4) as usize).copied().unwrap_or(0)
    }

    /// Returns the values of the ring pages after a reset.
    pub(super) fn ring_resets(&self) -> &[u32] {
        &self.table.resets[(RING_PAGES / 4) as usize..(RING_PAGES_END / 4) as usize]
    }

    pub(super) fn get(&self, offset: u32) -> u32 {
        self.words.get((offset / 4) as usize).copied().unwrap_or(0)
    }

    /// Writes the bits that the register keeps.
    pub(super) fn set(&mut self, offset: u32, value: u32) {
        let mask = self.mask(offset);
        self.saved = None;
        if let Some(word) = self.words.get_mut((offset / 4) as usize) {
            *word = value & mask;
        }
    }

    /// Software reset (CTRL.RST). Keeps the address tables and the division of the packet buffer, which guests do not
    /// expect to lose.
    pub(super) fn reset(&mut self) {
        let mut words = self.table.resets.clone();
        for (first, end) in [(PBA, PBA + 4), (MTA, RA_END), (VFTA, VFTA_END)] {
            let stays = (first / 4) as usize..(end / 4) as usize;
            words[stays.clone()].copy_from_slice(&self.words[stays]);
        }
        (self.words, self.saved) = (words, None);
    }

    /// Appends the registers that differ from their values after a reset.
    pub(super) fn save(&mut self, to: &mut Writer) {
        let Registers { words, table, saved } = self;
        let saved = saved.get_or_insert_with(|| {
            let changed = || words.iter().zip(&table.resets).enumerate().filter(|(_, (word, reset))| word != reset);
            let mut to = Writer::default();
            to.u32(changed().count() as u32);
            for (index, (word, _)) in changed() {
                to.u32s(&[index as u32, *word]);
            }
            to.0
        });
        to.raw(saved);
    }

    /// Reads what [`Registers::save`] has written.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Option<()> {
        self.words = self.table.resets.clone();
        for _ in 0..from.u32()? {
            let (index, value) = (from.u32()?, from.u32()?);
            let offset = index.checked_mul(4).filter(|offset| *offset < END)?;
            self.set(offset, value);
        }
        Some(())
    }

    /// Sets receive address 0, the address of the station itself.
    pub(super) fn set_station(&mut self, mac: [u8; 6]) {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        self.set(RA, word(&mac[..4]));
        self.set(RA + 4, word(&mac[4..]) | RAH_AV);
    }
}

/// Translates the offset that a register had on the 82542 to the present one (SDM 13.3). Drivers may use either.
pub(super) fn canonical(offset: u32) -> u32 {
    match offset {
        CTRL_DUP => CTRL,
        0x0040..=0x00bf => offset - 0x40 + RA,
        0x0108 => RDTR,
        0x0110..=0x011b => offset - 0x110 + RDBAL,
        0x0120 => RDH,
        0x0128 => RDT,
        0x0160 => FCRTL,
        0x0168 => FCRTH,
        0x0200..=0x03ff => offset - 0x200 + MTA,
        0x0420..=0x042b => offset - 0x420 + TDBAL,
        0x0430 => TDH,
        0x0438 => TDT,
        0x0440 => TIDV,
        0x0600..=0x07ff => offset - 0x600 + VFTA,
        _ => offset,
    }
}

/// The part of a word that an access covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Offset of the word: a multiple of 4.
    pub(super) offset: u32,
    /// Index of the first byte in the word.
    pub(super) from: usize,
    /// Number of bytes.
    pub(super) len: usize,
}

/// Iterates over the words that an access of any length at any offset covers.
pub(super) fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let from = (at % 4) as usize;
        let len = (end - at).min(4 - from as u64);
        let part = Part { offset: u32::try_from(at - from as u64).unwrap_or(!3), from, len: len as usize };
        at += len;
        (len > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_access_is_cut_into_words() {
        let cut = |offset, len| parts(offset, len).map(|p| (p.offset, p.from, p.len)).collect::<Vec<_>>();
        assert_eq!(cut(8, 4), [(8, 0, 4)]);
        assert_eq!(cut(7, 8), [(4, 3, 1), (8, 0, 4), (12, 0, 3)]);
        assert_eq!(cut(6, 1), [(4, 2, 1)]);
        assert_eq!(cut(6, 0), []);
    }

    #[test]
    fn the_register_test_of_drivers_finds_the_masks_that_it_expects() {
        for model in [Model::E1000, Model::E1000e] {
            let mut registers = Registers::new(model);
            for (offset, mask) in [
                (FCAL, !0),
                (FCAH, 0xffff),
                (FCT, 0xffff),
                (VET, 0xffff),
                (RDTR, 0xffff),
                (RDLEN, 0xf_ff80),
                (FCTTV, 0xffff),
                (TIPG, 0x3fff_ffff),
                (RDBAL, !0xf),
                (TXCW, 0xc000_ffff),
                (TIDV, 0xffff),
                (RA + 4, 0x8003_ffff),
                (RA + 14 * 8 + 4, 0x8003_ffff),
                (MTA, !0),
                (MTA_END - 4, !0),
            ] {
                assert_eq!(registers.mask(offset), mask, "{offset:#x}");
                registers.set(offset, 0x5a5a_5a5a);
                assert_eq!(registers.get(offset), 0x5a5a_5a5a & mask);
            }
            assert_eq!(registers.mask(RCTL) & 0x06df_b3fe, 0x06df_b3fe);
        }
    }

    #[test]
    fn a_reset_leaves_the_tables() {
        let mut registers = Registers::new(Model::E1000);
        for offset in [MTA, RA, VFTA, VET, RCTL] {
            registers.set(offset, 0x10);
        }
        registers.reset();
        assert_eq!([MTA, RA, VFTA, VET, RCTL].map(|offset| registers.get(offset)), [0x10, 0x10, 0x10, 0, 0]);
    }
}
