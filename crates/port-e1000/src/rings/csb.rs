//! Where a driver has its communication status block (Maffione 2012, section 4.4.2).

use ringway_abi::csb::{self, Csb};
use ringway_port::guest::GuestMemory;

use super::fault::RingFault;

/// The address of a communication status block. The block was in memory when the address was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsbLocation {
    address: u64,
}

impl CsbLocation {
    /// Checks that a block at this guest physical address is in memory.
    ///
    /// # Errors
    /// The address is not aligned to words, or the block is not in one region.
    pub fn new(address: u64, writable: &GuestMemory) -> Result<CsbLocation, RingFault> {
        let place = CsbLocation { address };
        place.block(writable).map(|_| place).ok_or(RingFault::BadBlock(address))
    }

    /// Returns the block, for the length of a batch, or `None` if its memory was unmapped meanwhile.
    #[inline]
    #[must_use]
    pub fn block(self, writable: &GuestMemory) -> Option<Csb<'_>> {
        Csb::new(writable.space().view(self.address, csb::BYTES as u32)?.words32()?)
    }

    /// Checks that the block does not overlap a ring of `count` 16-byte descriptors at `base`.
    ///
    /// # Errors
    /// The two overlap.
    pub fn check(self, base: u64, count: u32) -> Result<(), RingFault> {
        let end = self.address.saturating_add(csb::BYTES as u64);
        let ring_end = base.saturating_add(u64::from(count) << 4);
        let overlaps = self.address < ring_end && base < end;
        if overlaps { Err(RingFault::BlockOverlaps { block: self.address, base }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_port::testing::{Guest, HIGH, LOW, LOW_BYTES};

    #[test]
    fn a_block_is_in_memory_and_apart_from_the_rings_or_refused_by_name() {
        let guest = Guest::new();
        for address in [0, LOW - 4, LOW + 2, LOW + LOW_BYTES - 4092, HIGH - 4096, u64::MAX - 4095, u64::MAX] {
            let refused = CsbLocation::new(address, &guest.memory).map_err(RingFault::name);
            assert_eq!(refused, Err("csb_bad_address"), "{address:#x}");
        }
        let place = CsbLocation::new(HIGH, &guest.memory).expect("a block");
        for (base, count, apart) in [
            (HIGH + 4096, 8, true),
            (HIGH + 4080, 8, false),
            (HIGH - 128, 8, true),
            (HIGH - 112, 8, false),
            (HIGH, 8, false),
            (HIGH - 65_536, 65_528, false),
            (u64::MAX - 15, 65_528, true),
        ] {
            let result = place.check(base, count).map_err(RingFault::name);
            assert_eq!(result, if apart { Ok(()) } else { Err("csb_overlaps_ring") }, "{base:#x}");
        }
        place.block(&guest.memory).expect("a block").begin(1, 2);
        assert_eq!(guest.read(HIGH + 64, 8), [1, 0, 0, 0, 1, 0, 0, 0]);
    }
}
