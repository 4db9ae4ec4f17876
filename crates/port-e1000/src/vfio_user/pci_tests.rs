//! The configuration space, as a guest and a hypervisor see it.

use proptest::prelude::*;

use super::pci::{Bar, CONFIG_BYTES, Capability, ConfigSpace, PciIds};
use super::testing::{BAR, config};

fn word(space: &ConfigSpace, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    assert!(space.read(offset, &mut bytes).is_ok());
    u32::from_le_bytes(bytes)
}

/// Writes all ones to a register, as software does to find a BAR's size. Returns what the register reads then.
fn probe(space: &mut ConfigSpace, offset: u64) -> u32 {
    assert!(space.write(offset, &[0xff; 4]).is_ok());
    word(space, offset)
}

#[test]
fn a_function_says_who_it_is() {
    let space = config();
    assert_eq!((word(&space, 0), word(&space, 8)), (0x10d3_8086, 0x0200_0003));
    assert_eq!((word(&space, 0x2c), word(&space, 0x3c)), (0xa01f_8086, 0x0100), "with INTA#");
    assert_eq!(word(&space, 0x0c) >> 16 & 0xff, 0, "an ordinary header");
}

#[test]
fn base_addresses_tell_their_size_and_kind_and_nothing_else_can_be_written() {
    let mut space = config();
    assert_eq!(probe(&mut space, 0x10), !(BAR as u32 - 1), "memory");
    assert_eq!(probe(&mut space, 0x14), 0, "none");
    assert_eq!(probe(&mut space, 0x18), !31 | 1, "ports");
    assert_eq!(probe(&mut space, 0x30), 0, "no expansion ROM");
    assert!(space.write(0x10, &0xfebf_8000u32.to_le_bytes()).is_ok());
    assert_eq!(word(&space, 0x10), 0xfebf_8000);
    for offset in [0, 8, 0x28, 0x2c, 0x34, 0x38] {
        let before = word(&space, offset);
        assert_eq!(probe(&mut space, offset), before, "at {offset:#x}");
    }
    assert_eq!(probe(&mut space, 4) & 0xffff, 0x0557, "command");
    assert_eq!(space.command(), 0x0557);
    assert_eq!(probe(&mut space, 4) >> 16, 0x10, "status: capabilities, and nothing to clear");
    space.reset();
    assert_eq!((space.command(), word(&space, 0x10)), (0, 0));
}

#[test]
fn capabilities_are_found_one_after_another() {
    let mut space = config();
    let (mut at, mut found) = ((word(&space, 0x34) & 0xff) as u64, Vec::new());
    while at != 0 && found.len() < 48 {
        let head = word(&space, at);
        found.push((head & 0xff, at));
        at = u64::from(head >> 8 & 0xff);
    }
    assert_eq!(found, [(1, 0xc8), (5, 0xd0), (0x11, 0xa0)]);
    // MSI: 4 messages and 64-bit addresses. The guest can enable it and choose how many messages it uses.
    assert_eq!(word(&space, 0xd0) >> 16, 0x84);
    assert_eq!(probe(&mut space, 0xd0) >> 16, 0x84 | 0x71);
    assert_eq!((probe(&mut space, 0xd4), probe(&mut space, 0xd8)), (!3, !0));
    assert_eq!(probe(&mut space, 0xdc) & 0xffff, 0xffff);
    // MSI-X: 5 vectors, with table and pending bits in BAR 0.
    assert_eq!((word(&space, 0xa0) >> 16, word(&space, 0xa4), word(&space, 0xa8)), (4, 0x3000, 0x3800));
    assert_eq!(probe(&mut space, 0xa0) >> 16, 4 | 0xc000);
    assert_eq!(probe(&mut space, 0xa4), 0x3000);
    // Power management: D0 and D3.
    assert_eq!(word(&space, 0xc8) >> 16, 2);
    assert_eq!(probe(&mut space, 0xcc) & 0xffff, 0x0b);
}

#[test]
fn a_capability_that_does_not_fit_is_cut() {
    let ids = PciIds { vendor: 1, device: 2, revision: 0, class: 0, subsystem_vendor: 0, subsystem: 0 };
    let space = ConfigSpace::new(&ids, &[Bar::None; 9], &[Capability::msi(0xf8, 0)]);
    assert_eq!(word(&space, 0xf8) & 0xff, 5);
}

proptest! {
    /// Writes of any bytes at any offset: read-only bits do not change, and writable bits read back.
    #[test]
    fn only_what_can_be_written_changes(writes in prop::collection::vec((0u64..300, prop::collection::vec(any::<u8>(), 0..9)), 0..40)) {
        let mut space = config();
        let (mut first, mut ones) = ([0; CONFIG_BYTES], config());
        prop_assert!(space.read(0, &mut first).is_ok() && ones.write(0, &[0xff; CONFIG_BYTES]).is_ok());
        let mut all = [0; CONFIG_BYTES];
        prop_assert!(ones.read(0, &mut all).is_ok());
        let mut expected = first;
        for (offset, data) in writes {
            let fits = offset as usize + data.len() <= CONFIG_BYTES;
            prop_assert_eq!(space.write(offset, &data).is_ok(), fits);
            for (at, byte) in data.iter().enumerate().filter(|_| fits) {
                let at = offset as usize + at;
                // Bits that read as zero first, and as one after ones were written, are writable.
                let mask = all[at] & !first[at];
                expected[at] = expected[at] & !mask | byte & mask;
            }
        }
        let mut now = [0; CONFIG_BYTES];
        prop_assert!(space.read(0, &mut now).is_ok());
        prop_assert_eq!(now, expected);
        let mut beyond = [0; 2];
        prop_assert!(space.read(255, &mut beyond).is_err() && space.read(u64::MAX, &mut beyond).is_err());
    }
}
