//! A PCI function that this program drives.

use std::io;
use std::os::fd::BorrowedFd;

use super::dma::{Dma, HUGE_PAGE, physical};
use super::error::PciError;
use super::registers::Registers;
use super::sysfs::{Function, UIO};
use super::uio::Uio;
use super::vfio::Vfio;

/// Offset of the command register in configuration space.
pub const COMMAND: u64 = 4;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
const COMMAND_INTX_OFF: u16 = 1 << 10;
/// Offset of the status register, its bit for capabilities, and the offset of the first one's place.
const STATUS: u64 = 6;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const FIRST_CAPABILITY: u64 = 0x34;
/// Most capabilities: their list is in 192 bytes, each takes at least 4.
const MOST_CAPABILITIES: usize = 48;

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciId {
    /// The maker.
    pub vendor: u16,
    /// The model.
    pub device: u16,
    /// The maker of the card.
    pub subsystem_vendor: u16,
    /// The card.
    pub subsystem: u16,
}

/// A capability in configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its kind.
    pub id: u8,
    /// Its offset.
    pub at: u64,
}

#[derive(Debug)]
enum Access {
    Uio(Uio),
    Vfio(Vfio),
}

/// A PCI function that this program drives. Dropped, it ends the device's access to memory: the owner of [`Dma`] drops the device first.
#[derive(Debug)]
pub struct PciDevice {
    address: String,
    id: PciId,
    access: Access,
    /// The command register with its interrupt line on. Only this program and the kernel, which turns the line off, write it.
    command: u16,
}

impl PciDevice {
    /// Opens the function at an address, `0000:00:04.0` or `00:04.0`. It is bound to `vfio-pci` or `uio_pci_generic` if no driver has
    /// it. The device may access memory afterwards.
    ///
    /// # Errors
    /// See [`PciError`].
    pub fn open(address: &str) -> Result<PciDevice, PciError> {
        let function = Function::find(address)?;
        let number = |name| function.number(name).map(|number| number as u16);
        let id = PciId {
            vendor: number("vendor")?,
            device: number("device")?,
            subsystem_vendor: number("subsystem_vendor")?,
            subsystem: number("subsystem_device")?,
        };
        let access = match function.driver()? {
            UIO => Access::Uio(Uio::open(&function)?),
            _ => Access::Vfio(Vfio::open(&function)?),
        };
        let mut device = PciDevice { address: function.address, id, access, command: 0 };
        device.start().map_err(PciError::of(&device.address))?;
        Ok(device)
    }

    /// Returns the address in its full form.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns what the function is.
    #[must_use]
    pub fn id(&self) -> PciId {
        self.id
    }

    /// Maps the registers of BAR `bar`, 0 to 5.
    ///
    /// # Errors
    /// It has none, or has I/O ports there.
    pub fn bar(&self, bar: usize) -> Result<Registers, PciError> {
        match &self.access {
            Access::Uio(uio) => uio.bar(bar),
            Access::Vfio(vfio) => vfio.bar(bar),
        }
        .map(Registers::new)
    }

    /// Reads configuration space.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn config_read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match &self.access {
            Access::Uio(uio) => uio.config_read(at, bytes),
            Access::Vfio(vfio) => vfio.config_read(at, bytes),
        }
    }

    /// Writes configuration space.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn config_write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match &self.access {
            Access::Uio(uio) => uio.config_write(at, bytes),
            Access::Vfio(vfio) => vfio.config_write(at, bytes),
        }
    }

    /// Returns the capabilities.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn capabilities(&self) -> io::Result<Vec<Capability>> {
        let mut found = Vec::new();
        if self.config_word(STATUS)? & STATUS_CAPABILITIES == 0 {
            return Ok(found);
        }
        let mut next = self.config_word(FIRST_CAPABILITY)? & 0xfc;
        while next >= 0x40 && found.len() < MOST_CAPABILITIES {
            let at = u64::from(next);
            let [id, after] = self.config_word(at)?.to_le_bytes();
            found.push(Capability { id, at });
            next = u16::from(after & 0xfc);
        }
        Ok(found)
    }

    /// Returns the descriptor that becomes readable after an interrupt (INTx). [`PciDevice::take_interrupt`] and
    /// [`PciDevice::unmask`] make it ready for the next.
    #[must_use]
    pub fn interrupt(&self) -> BorrowedFd<'_> {
        match &self.access {
            Access::Uio(uio) => uio.interrupt(),
            Access::Vfio(vfio) => vfio.interrupt(),
        }
    }

    /// Takes interrupts that have come: the descriptor is no longer readable. Returns false if none has. The kernel has masked the
    /// interrupt line since.
    pub fn take_interrupt(&self) -> bool {
        match &self.access {
            Access::Uio(uio) => uio.take(),
            Access::Vfio(vfio) => vfio.take(),
        }
    }

    /// Lets the next interrupt come. The device's own cause must have been cleared before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn unmask(&self) -> io::Result<()> {
        match &self.access {
            Access::Uio(_) => self.write_command(self.command),
            Access::Vfio(vfio) => vfio.unmask(),
        }
    }

    /// Holds interrupts back, until [`PciDevice::unmask`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn mask(&self) -> io::Result<()> {
        match &self.access {
            Access::Uio(_) => self.write_command(self.command | COMMAND_INTX_OFF),
            Access::Vfio(vfio) => vfio.mask(),
        }
    }

    /// Makes memory of at least `bytes` bytes that the device can access.
    ///
    /// # Errors
    /// There are too few huge pages, or the kernel refuses.
    pub fn dma(&mut self, bytes: usize) -> Result<Dma, PciError> {
        let PciDevice { address, access, .. } = self;
        Dma::new(bytes, |memory| {
            let bus = match access {
                Access::Uio(_) => None,
                Access::Vfio(vfio) => vfio.map(memory)?,
            };
            match bus {
                Some(bus) => Ok((bus..bus + memory.bytes() as u64).step_by(HUGE_PAGE).collect()),
                None => physical(memory, address),
            }
        })
    }

    fn config_word(&self, at: u64) -> io::Result<u16> {
        let mut word = [0; 2];
        self.config_read(at, &mut word)?;
        Ok(u16::from_le_bytes(word))
    }

    /// Lets the device answer and access memory.
    fn start(&mut self) -> io::Result<()> {
        let command = self.config_word(COMMAND)? | COMMAND_MEMORY | COMMAND_MASTER;
        self.command = command & !COMMAND_INTX_OFF;
        self.write_command(command)
    }

    fn write_command(&self, command: u16) -> io::Result<()> {
        self.config_write(COMMAND, &command.to_le_bytes())
    }
}

impl Drop for PciDevice {
    fn drop(&mut self) {
        // Without it the device could write to memory that others get. If the kernel refuses, the device has gone.
        let _ = self.config_word(COMMAND).and_then(|had| self.write_command(had & !COMMAND_MASTER));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn the_interrupt_line_opens_and_closes_without_a_look_at_the_register() {
        let config = File::from(memfd_create("config", MemfdFlags::CLOEXEC).unwrap());
        let register = |value: Option<u16>| {
            let mut bytes = value.unwrap_or(0).to_le_bytes();
            let done =
                if value.is_some() { config.write_all_at(&bytes, 4) } else { config.read_exact_at(&mut bytes, 4) };
            done.map(|()| u16::from_le_bytes(bytes)).unwrap()
        };
        let parity = 1 << 6;
        register(Some(parity | COMMAND_INTX_OFF));
        let (address, id) = (String::new(), PciId { vendor: 0, device: 0, subsystem_vendor: 0, subsystem: 0 });
        let access = Access::Uio(Uio::local(config.try_clone().unwrap()).unwrap());
        let mut device = PciDevice { address, id, access, command: 0 };
        device.start().unwrap();
        let on = parity | COMMAND_MEMORY | COMMAND_MASTER;
        assert_eq!(register(None), on | COMMAND_INTX_OFF, "the line stays as it was");
        // A look would find nothing.
        register(Some(0));
        device.unmask().unwrap();
        assert_eq!(register(None), on);
        device.mask().unwrap();
        assert_eq!(register(None), on | COMMAND_INTX_OFF);
        drop(device);
        assert_eq!(register(None) & COMMAND_MASTER, 0);
    }
}
