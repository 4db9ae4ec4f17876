//! `[memory]` and the key `memory` of a port: bounds of the memory that front ends give.

use ringway_api::types::MemoryStatus;
use ringway_memory::Limits;

use crate::keys::form::{Integer, Size, TableOf, WithSentinel};
use crate::keys::{Keys, Table, Validate, keys};

/// Bounds of `size`: a page, and the address space of a process.
const SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 47;
/// Bounds of `holes`.
const HOLES: std::ops::RangeInclusive<u64> = 0..=1 << 47;
/// Largest value of `mappings`: it leaves room for the daemon's own mappings.
const MAPPINGS_MAX: u32 = 12_288;

keys! {
    /// Bounds of the memory that front ends of virtual machines give and that the daemon maps: guests' memory, dirty logs, inflight
    /// memory.
    #[derive(Copy)]
    pub struct Memory {
        size: u64 = Memory::TOTAL.size, Size(SIZES), Fixed, "Bytes of address space.";
        mappings: u32 = Memory::TOTAL.mappings, Integer(1..=MAPPINGS_MAX), Fixed, "Mappings; keep the sum well below vm.max_map_count.";
        holes: u64 = Memory::TOTAL.holes, WithSentinel { none: u64::MAX, form: Size(HOLES) }, Fixed, "Bytes of untouched pages that are allocated for frames.",
            "Of a port: those allocated within an hour for frames to the guest, and 1/64 of that for frames from it. Of all ports \
             together ([memory]): those in memory that front ends give at present; by default half of the machine's memory.";
    }
}

impl Memory {
    /// The defaults of one port.
    pub const PORT: Memory = Memory { size: 2 << 40, mappings: 512, holes: 4 << 30 };
    /// The defaults of all ports together. `holes` of `u64::MAX` stands for half of the machine's memory.
    pub const TOTAL: Memory = Memory { size: 64 << 40, mappings: MAPPINGS_MAX, holes: u64::MAX };

    /// Reads `[memory]`.
    pub fn read_section(keys: Keys<'_>) -> Memory {
        let mut memory = Memory::TOTAL;
        memory.read(&keys);
        keys.finish();
        memory
    }

    /// Returns the bounds as the status of a front end that has given no memory.
    pub fn status(self) -> MemoryStatus {
        MemoryStatus {
            size: self.size,
            most_mappings: self.mappings.into(),
            holes: self.holes,
            ..MemoryStatus::default()
        }
    }

    /// Returns the bounds as ringway-memory takes them.
    pub fn limits(self) -> Limits {
        Limits { bytes: self.size, mappings: self.mappings.into(), holes: self.holes }
    }
}

impl Validate for Memory {}

/// Sets what the front end gives now.
pub fn set_used(status: &mut MemoryStatus, now: Limits) {
    status.mapped = now.bytes;
    status.mappings = now.mappings;
    status.filled = now.holes;
}

keys! {
    /// The key `memory` of ports whose front ends give memory.
    pub struct FrontEndMemory {
        memory: Memory = Memory::PORT, TableOf { wanted: "bounds like { size = \"2TiB\" }", empty: || Memory::PORT }, Fixed, "How much memory the front end may give; more is refused (memory_limit).";
    }
}
