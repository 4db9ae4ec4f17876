//! `[memory]`, and `memory` of a port: how much memory front ends may give.

use ringway_memory::Limits;

use super::form::{Size, TableOf, Unless, Whole};
use super::keys::Keys;
use super::table::{Section, Table, keys};

/// Sizes that can be set: a page at least, all that a process has at most.
const SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 47;
/// Bytes of untouched pages that can be set.
const HOLES: std::ops::RangeInclusive<u64> = 0..=1 << 47;
/// Most mappings that can be set: as many as leave room for the daemon's own.
const MAPPINGS_MAX: u32 = 12_288;

keys! {
    /// Bounds of the memory that front ends of virtual machines give and that the daemon maps: guests' memory, dirty logs, inflight
    /// memory.
    #[derive(Copy)]
    pub struct Memory {
        size: u64 = Memory::TOTAL.size, Size(SIZES), Fixed, "Bytes of address space.";
        mappings: u32 = Memory::TOTAL.mappings, Whole(1..=MAPPINGS_MAX), Fixed, "Mappings; keep the sum well below vm.max_map_count.";
        holes: u64 = Memory::TOTAL.holes, Unless { none: u64::MAX, form: Size(HOLES) }, Fixed, "Bytes of untouched pages that are allocated for frames.",
            "Of a port: those allocated within an hour for frames to the guest, and 1/64 of that for frames from it. Of all ports \
             together ([memory]): those in memory that front ends give at present; by default half of the machine's memory.";
    }
}

impl Memory {
    /// The default of one port.
    pub const PORT: Memory = Memory { size: 2 << 40, mappings: 512, holes: 4 << 30 };
    /// The default of all ports together. `holes` of `u64::MAX` stands for half of the machine's memory.
    pub const TOTAL: Memory = Memory { size: 64 << 40, mappings: MAPPINGS_MAX, holes: u64::MAX };

    /// Reads `[memory]`.
    pub fn read_section(keys: Keys<'_>) -> Memory {
        let mut memory = Memory::TOTAL;
        memory.read(&keys);
        keys.finish();
        memory
    }

    /// The bounds as ringway-memory takes them.
    pub fn limits(self) -> Limits {
        Limits { bytes: self.size, mappings: self.mappings.into(), holes: self.holes }
    }
}

impl Section for Memory {}

keys! {
    /// The key `memory` of ports whose front ends give memory.
    pub struct FrontEndMemory {
        memory: Memory = Memory::PORT, TableOf { wanted: "bounds like { size = \"2TiB\" }", empty: || Memory::PORT }, Fixed, "How much memory the front end may give; more is refused (memory_limit).";
    }
}
