//! `[memory]`, and `memory` of a port: how much memory front ends may give.

use serde::{Serialize, Serializer};

use super::keys::Keys;
use super::units;

/// Sizes that can be set: a page at least, all that a process has at most.
const SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 47;
/// Pages that are not there yet: none, or as many as can be.
const HOLES: std::ops::RangeInclusive<u64> = 0..=1 << 47;
/// Most mappings that can be set: as many as leave room for the daemon's own.
const MAPPINGS_MAX: u32 = 12_288;

/// Bounds of the memory that front ends of virtual machines give, which the daemon maps: guests' memory, dirty logs, inflight
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of address space.
    pub size: u64,
    /// Mappings.
    pub mappings: u32,
    /// Bytes of pages that are not there yet. For a port: which are made within an hour for frames to the guest; a part of that
    /// for frames from it. For all ports together: which may have been made in memory that front ends give now; `u64::MAX` is
    /// half of the machine's.
    pub holes: u64,
}

impl Memory {
    /// Of one port.
    pub const PORT: Memory = Memory { size: 2 << 40, mappings: 512, holes: 4 << 30 };
    /// Of all ports together.
    pub const TOTAL: Memory = Memory { size: 64 << 40, mappings: MAPPINGS_MAX, holes: u64::MAX };

    /// Reads `[memory]`.
    pub fn read(keys: Keys<'_>) -> Memory {
        let read = MemoryKeys::of(&keys);
        keys.finish();
        read.over(Memory::TOTAL)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::TOTAL
    }
}

/// Those of its keys that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryKeys {
    /// Bytes of address space.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_size")]
    pub size: Option<u64>,
    /// Mappings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<u32>,
    /// Bytes of pages that are not there yet.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_size")]
    pub holes: Option<u64>,
}

impl MemoryKeys {
    /// Reads `memory` of a port.
    pub fn read(port: &Keys<'_>) -> Option<Self> {
        let keys = port.table("memory", "bounds like { size = \"2TiB\" }")?;
        let read = Self::of(&keys);
        keys.finish();
        Some(read)
    }

    fn of(keys: &Keys<'_>) -> Self {
        Self {
            size: keys.size("size", SIZES),
            mappings: keys.integer("mappings", 1..=MAPPINGS_MAX),
            holes: keys.size("holes", HOLES),
        }
    }

    /// What was written, and the rest of `default`.
    pub fn over(self, default: Memory) -> Memory {
        Memory {
            size: self.size.unwrap_or(default.size),
            mappings: self.mappings.unwrap_or(default.mappings),
            holes: self.holes.unwrap_or(default.holes),
        }
    }
}

fn write_size<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(units::show_size).serialize(serializer)
}
