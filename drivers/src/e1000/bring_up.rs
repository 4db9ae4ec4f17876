//! From a NIC to rings that work (8254x manual, chapter 14; 82574 datasheet, 4.6), by the steps of the Linux drivers.

use std::time::{Duration, Instant};

use ringway_abi::e1000::{ReceiveFormat, receive_size, register as reg};

/// A tag of a VLAN and a frame check sequence, which count for the longest frame that a device receives.
const TAG_AND_FCS: u32 = 8;

/// The model of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// 82540EM. Its Linux driver is e1000.
    Pro1000,
    /// 82574L. Its Linux driver is e1000e.
    Express,
}

impl Model {
    /// Returns the model of a PCI function.
    #[must_use]
    pub fn of(vendor: u16, device: u16) -> Option<Model> {
        match (vendor, device) {
            (0x8086, 0x100e) => Some(Model::Pro1000),
            (0x8086, 0x10d3) => Some(Model::Express),
            _ => None,
        }
    }

    /// Returns how it writes received frames' descriptors.
    #[must_use]
    pub fn format(self) -> ReceiveFormat {
        match self {
            Model::Pro1000 => ReceiveFormat::Legacy,
            Model::Express => ReceiveFormat::Extended,
        }
    }

    /// Returns the bytes that the device writes into a buffer of `buffer` bytes at most.
    #[must_use]
    pub fn receives(self, buffer: u32) -> u32 {
        16_384.min(1 << buffer.max(256).ilog2())
    }

    /// Returns the longest frame for buffers of `buffer` bytes, without a tag.
    #[must_use]
    pub fn longest(self, buffer: u32) -> u32 {
        let most = if self == Model::Pro1000 { 16_128 } else { 9234 };
        match self.receives(buffer) {
            short @ ..=1024 => short,
            2048 => 1514,
            long => long.min(most) - TAG_AND_FCS,
        }
    }
}

/// Access to the registers of a NIC.
pub trait Registers {
    /// Why an access fails, or what is wrong with the device.
    type Error;

    /// Reads a register.
    ///
    /// # Errors
    /// The device is gone.
    fn read(&mut self, register: u32) -> Result<u32, Self::Error>;

    /// Writes a register. The device sees all earlier writes to memory.
    ///
    /// # Errors
    /// The device is gone.
    fn write(&mut self, register: u32, value: u32) -> Result<(), Self::Error>;

    /// Makes the error of a device that does not behave like a NIC of its model: `what` goes on where the device is named.
    fn unexpected(&self, what: String) -> Self::Error;
}

/// The location of a ring, as the device sees it.
#[derive(Debug, Clone, Copy)]
pub struct RingAt {
    /// Address of the descriptors.
    pub address: u64,
    /// Number of descriptors.
    pub size: u32,
}

/// How a NIC is set up.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// The transmit ring.
    pub tx: RingAt,
    /// The receive ring.
    pub rx: RingAt,
    /// Address of a status block.
    pub csb: Option<u64>,
    /// Shortest time between two interrupts, in units of 256 ns (ITR).
    pub throttle: u32,
    /// An 82574L masks its interrupts when their causes are read.
    pub masks_itself: bool,
    /// Bytes of a receive buffer, a power of two from 256 to 16,384.
    pub buffer: u32,
    /// Frames to all addresses are received.
    pub promiscuous: bool,
    /// Received frames include their frame check sequence.
    pub with_fcs: bool,
}

/// Waits for something that no event tells: polls.
///
/// # Errors
/// It did not come true within `within`: `otherwise`, or an access failed.
pub fn until<R: Registers>(
    registers: &mut R,
    within: Duration,
    otherwise: &str,
    mut done: impl FnMut(&mut R) -> Result<bool, R::Error>,
) -> Result<(), R::Error> {
    let deadline = Instant::now() + within;
    while !done(registers)? {
        if Instant::now() >= deadline {
            return Err(registers.unexpected(format!("{otherwise} (after {within:?})")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Ends interrupts and all access to memory by a reset, and does not wait for its end.
///
/// # Errors
/// An access failed.
pub fn stop<R: Registers>(registers: &mut R) -> Result<(), R::Error> {
    registers.write(reg::IMC, u32::MAX)?;
    registers.write(reg::RCTL, 0)?;
    registers.write(reg::TCTL, reg::TCTL_PSP)?;
    registers.read(reg::STATUS)?;
    let control = registers.read(reg::CTRL)?;
    registers.write(reg::CTRL, control | reg::CTRL_RST)
}

/// Resets the device.
///
/// # Errors
/// The reset does not end, or an access failed.
pub fn reset<R: Registers>(registers: &mut R, within: Duration) -> Result<(), R::Error> {
    stop(registers)?;
    until(
        registers,
        within,
        "does not end its reset",
        |registers| Ok(registers.read(reg::CTRL)? & reg::CTRL_RST == 0),
    )?;
    registers.write(reg::IMC, u32::MAX)?;
    registers.read(reg::ICR)?;
    Ok(())
}

/// Sets the rings up and enables transmission and reception.
///
/// # Errors
/// An access failed.
pub fn start<R: Registers>(registers: &mut R, model: Model, setup: &Setup) -> Result<(), R::Error> {
    let control = registers.read(reg::CTRL)?;
    registers.write(reg::CTRL, control | reg::CTRL_SLU | reg::CTRL_ASDE)?;
    for (register, value) in [
        (reg::TDLEN, setup.tx.size * 16),
        (reg::TDBAH, (setup.tx.address >> 32) as u32),
        (reg::TDBAL, setup.tx.address as u32),
        (reg::TDT, 0),
        (reg::TDH, 0),
        (reg::TIPG, 8 | 8 << 10 | 6 << 20),
        (reg::TIDV, 0),
        (reg::TADV, 0),
        (reg::TCTL, reg::TCTL_EN | reg::TCTL_PSP | 15 << reg::TCTL_CT | 64 << reg::TCTL_COLD),
        (reg::RDTR, 0),
        (reg::RADV, 0),
        (reg::ITR, setup.throttle),
    ] {
        registers.write(register, value)?;
    }
    if model == Model::Express {
        if setup.masks_itself {
            let extended = registers.read(reg::CTRL_EXT)?;
            registers.write(reg::IAM, u32::MAX)?;
            registers.write(reg::CTRL_EXT, extended | reg::CTRL_EXT_IAME)?;
        }
        registers.write(reg::RFCTL, reg::RFCTL_EXTEN)?;
    }
    for (register, value) in [
        (reg::RDLEN, setup.rx.size * 16),
        (reg::RDBAH, (setup.rx.address >> 32) as u32),
        (reg::RDBAL, setup.rx.address as u32),
        (reg::RDT, 0),
        (reg::RDH, 0),
    ] {
        registers.write(register, value)?;
    }
    if let Some(address) = setup.csb {
        registers.write(reg::CSBAH, (address >> 32) as u32)?;
        registers.write(reg::CSBAL, address as u32)?;
    }
    let all = if setup.promiscuous { reg::RCTL_UPE | reg::RCTL_MPE } else { 0 };
    let strip = if setup.with_fcs { 0 } else { reg::RCTL_SECRC };
    let size = receive_size(setup.buffer).unwrap_or(0);
    registers.write(reg::RCTL, reg::RCTL_EN | reg::RCTL_BAM | all | strip | size)
}
