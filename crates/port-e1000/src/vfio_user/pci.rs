//! A function's configuration space (PCI Local Bus 3.0, chapter 6 and appendix H; PCI Bus Power Management 1.2, chapter 3).
//!
//! The space is bytes, and a mask of the bits of each byte that can be written. A driver finds the sizes of base addresses by
//! these masks alone.

use super::function::BadAccess;

/// Bytes of a conventional PCI configuration space.
pub const CONFIG_BYTES: usize = 256;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const BARS: usize = 0x10;
const CAPABILITIES: usize = 0x34;
const LINE: usize = 0x3c;
const PIN: usize = 0x3d;
/// Bits of the status register: a capability list is present; an interrupt is pending.
const HAS_LIST: u8 = 1 << 4;
const INTERRUPT: u8 = 1 << 3;
/// Bit of the command register: interrupt pin disabled.
const PIN_DISABLED: u16 = 1 << 10;

/// Identification of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciIds {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Revision ID.
    pub revision: u8,
    /// Base class, sub-class and programming interface, from the highest of 24 bits.
    pub class: u32,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
}

/// A base address register. Sizes are powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bar {
    /// Not implemented.
    #[default]
    None,
    /// 32-bit memory of this many bytes (at least 16).
    Memory(u32),
    /// I/O ports, this many bytes (at least 4).
    Io(u32),
}

/// A capability: its bytes, and a mask of the bits that the guest can write. The first byte is the capability ID. The
/// second, the pointer to the next capability, is set by [`ConfigSpace::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    at: u8,
    bytes: Vec<u8>,
    writable: Vec<u8>,
}

impl Capability {
    /// MSI with 64-bit addresses and `1 << log2` messages, at offset `at`.
    #[must_use]
    pub fn msi(at: u8, log2: u8) -> Capability {
        const WIDE: u8 = 1 << 7;
        let mut bytes = vec![0; 14];
        (bytes[0], bytes[2]) = (0x05, WIDE | log2 << 1);
        let mut writable = vec![0; 14];
        // Writable: the enable bit, and the number of messages in use.
        writable[2] = 0x71;
        writable[4..].fill(0xff);
        writable[4] = 0xfc;
        Capability { at, bytes, writable }
    }

    /// MSI-X with `vectors` entries, at offset `at`. `table` and `pending` are the BAR and the offset (a multiple of 8)
    /// of the table and of the pending bits.
    #[must_use]
    pub fn msi_x(at: u8, vectors: u16, table: (u8, u32), pending: (u8, u32)) -> Capability {
        let mut bytes = vec![0; 12];
        bytes[0] = 0x11;
        bytes[2..4].copy_from_slice(&(vectors.saturating_sub(1) & 0x7ff).to_le_bytes());
        let place = |(bar, offset): (u8, u32)| (offset & !7 | u32::from(bar & 7)).to_le_bytes();
        bytes[4..8].copy_from_slice(&place(table));
        bytes[8..].copy_from_slice(&place(pending));
        let mut writable = vec![0; 12];
        // Writable: the enable bit, and the function mask.
        writable[3] = 0xc0;
        Capability { at, bytes, writable }
    }

    /// Power management with the states D0 and D3, without wake-up, at offset `at`.
    #[must_use]
    pub fn power(at: u8) -> Capability {
        const VERSION: u8 = 2;
        // The configuration survives a return from D3.
        const NO_SOFT_RESET: u8 = 1 << 3;
        Capability { at, bytes: vec![1, 0, VERSION, 0, NO_SOFT_RESET, 0, 0, 0], writable: vec![0, 0, 0, 0, 3, 0, 0, 0] }
    }
}

/// A configuration space.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; CONFIG_BYTES],
    writable: [u8; CONFIG_BYTES],
    /// The contents after power-on.
    reset: [u8; CONFIG_BYTES],
}

impl ConfigSpace {
    /// Makes a configuration space in the state after power-on, with interrupt pin INTA#.
    #[must_use]
    pub fn new(ids: &PciIds, bars: &[Bar], capabilities: &[Capability]) -> ConfigSpace {
        let mut bytes = [0; CONFIG_BYTES];
        let mut writable = [0; CONFIG_BYTES];
        bytes[..2].copy_from_slice(&ids.vendor.to_le_bytes());
        bytes[2..4].copy_from_slice(&ids.device.to_le_bytes());
        bytes[8] = ids.revision;
        bytes[9..12].copy_from_slice(&ids.class.to_le_bytes()[..3]);
        bytes[0x2c..0x2e].copy_from_slice(&ids.subsystem_vendor.to_le_bytes());
        bytes[0x2e..0x30].copy_from_slice(&ids.subsystem.to_le_bytes());
        // Writable bits of the command register: I/O, memory, bus master, memory write and invalidate, parity error
        // response; SERR#, interrupt disable.
        (writable[COMMAND], writable[COMMAND + 1]) = (0x57, 0x05);
        writable[0x0c] = 0xff;
        (writable[LINE], bytes[PIN]) = (0xff, 1);
        for (at, bar) in (BARS..).step_by(4).zip(bars.iter().take(6)) {
            let (kind, size, fixed) = match *bar {
                Bar::None => continue,
                Bar::Memory(size) => (0, size, 0xf),
                Bar::Io(size) => (1, size, 0x3),
            };
            bytes[at] = kind;
            let mask = !(size.next_power_of_two() - 1) & !fixed;
            writable[at..at + 4].copy_from_slice(&mask.to_le_bytes());
        }
        let mut link = CAPABILITIES;
        for capability in capabilities {
            let at = usize::from(capability.at);
            let end = (at + capability.bytes.len()).min(CONFIG_BYTES);
            bytes[at..end].copy_from_slice(&capability.bytes[..end - at]);
            writable[at..end].copy_from_slice(&capability.writable[..end - at]);
            bytes[link] = capability.at;
            bytes[STATUS] |= HAS_LIST;
            link = at + 1;
        }
        ConfigSpace { bytes, writable, reset: bytes }
    }

    /// Reads the bytes at `offset`.
    ///
    /// # Errors
    /// The range is not inside the configuration space.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), BadAccess> {
        let start = usize::try_from(offset).map_err(|_| BadAccess)?;
        let end = start.checked_add(data.len()).ok_or(BadAccess)?;
        data.copy_from_slice(self.bytes.get(start..end).ok_or(BadAccess)?);
        Ok(())
    }

    /// Writes the writable bits of the bytes at `offset`.
    ///
    /// # Errors
    /// The range is not inside the configuration space.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), BadAccess> {
        let start = usize::try_from(offset).map_err(|_| BadAccess)?;
        let end = start.checked_add(data.len()).ok_or(BadAccess)?;
        let (bytes, masks) = (self.bytes.get_mut(start..end).ok_or(BadAccess)?, &self.writable[start..end]);
        for ((byte, mask), new) in bytes.iter_mut().zip(masks).zip(data) {
            *byte = *byte & !mask | new & mask;
        }
        Ok(())
    }

    /// Sets the interrupt bit of the status register, which shows a pending interrupt even if the pin is disabled (PCI
    /// 3.0, 6.2.3).
    pub fn set_interrupt(&mut self, pending: bool) {
        self.bytes[STATUS] = self.bytes[STATUS] & !INTERRUPT | if pending { INTERRUPT } else { 0 };
    }

    /// Returns true if the guest has disabled the interrupt pin.
    #[must_use]
    pub fn has_pin_disabled(&self) -> bool {
        self.command() & PIN_DISABLED != 0
    }

    /// Restores the state after power-on.
    pub fn reset(&mut self) {
        self.bytes = self.reset;
    }

    /// Returns the bytes that the guest can write, and 0 for the others.
    #[must_use]
    pub fn written(&self) -> [u8; CONFIG_BYTES] {
        std::array::from_fn(|at| self.bytes[at] & self.writable[at])
    }

    /// Writes all bytes that the guest can write.
    pub fn set_written(&mut self, bytes: &[u8; CONFIG_BYTES]) {
        self.reset();
        for ((byte, mask), new) in self.bytes.iter_mut().zip(&self.writable).zip(bytes) {
            *byte = *byte & !mask | new & mask;
        }
    }

    /// Returns the command register.
    #[must_use]
    pub fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[COMMAND], self.bytes[COMMAND + 1]])
    }
}
