//! The registers of a NIC, counted, and the steps from a reset to rings that work (8254x manual, chapter 14; 82574 datasheet, 4.6).

use std::time::{Duration, Instant};

use ringway_abi::e1000::{ReceiveFormat, receive_size, register as reg};

use crate::pci::{PciError, PciId, Registers};

/// The interrupt causes of received frames: received; few descriptors left; none left.
pub const RECEIVED: u32 = reg::RXT0 | reg::RXDMT0 | reg::RXO;
/// The interrupt cause of sent frames: a descriptor was written back.
pub const SENT: u32 = reg::TXDW;
/// The longest time until a NIC has reset itself or has a link.
const PATIENCE: Duration = Duration::from_secs(5);
/// A tag of a VLAN and a frame check sequence, which count for the longest frame that a device receives.
const TAG_AND_FCS: u32 = 8;

/// The model of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// 82540EM: e1000.
    Pro1000,
    /// 82574L: e1000e.
    Express,
}

impl Model {
    /// Returns the model of a PCI function.
    pub fn of(id: PciId) -> Option<Model> {
        match (id.vendor, id.device) {
            (0x8086, 0x100e) => Some(Model::Pro1000),
            (0x8086, 0x10d3) => Some(Model::Express),
            _ => None,
        }
    }

    /// Returns how it writes received frames' descriptors.
    pub fn format(self) -> ReceiveFormat {
        match self {
            Model::Pro1000 => ReceiveFormat::Legacy,
            Model::Express => ReceiveFormat::Extended,
        }
    }

    /// Returns the bytes that the device writes into a buffer of `buffer` bytes at most.
    pub fn receives(self, buffer: u32) -> u32 {
        16_384.min(1 << buffer.max(256).ilog2())
    }

    /// Returns the longest frame for buffers of `buffer` bytes, without a tag.
    pub fn longest(self, buffer: u32) -> u32 {
        let most = if self == Model::Pro1000 { 16_128 } else { 9234 };
        match self.receives(buffer) {
            short @ ..=1024 => short,
            2048 => 1514,
            long => long.min(most) - TAG_AND_FCS,
        }
    }
}

/// What a driver counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes of the transmit tail.
    pub kicks: u64,
    /// Interrupts.
    pub calls: u64,
    /// Other accesses to registers.
    pub accesses: u64,
    /// Received frames that were dropped.
    pub dropped: u64,
}

/// The registers. Counts every access.
#[derive(Debug)]
pub struct Nic {
    registers: Registers,
    model: Model,
    name: String,
    counts: Counts,
}

impl Nic {
    /// The registers of the function `name`.
    pub fn new(registers: Registers, model: Model, name: String) -> Nic {
        Nic { registers, model, name, counts: Counts::default() }
    }

    /// Returns the model.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns the name of the function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counts, to add events that are seen elsewhere.
    pub fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Returns what was counted.
    pub fn counted(&self) -> Counts {
        self.counts
    }

    /// Reads a register.
    pub fn read(&mut self, register: u32) -> u32 {
        self.counts.accesses += 1;
        self.registers.read32(register as usize)
    }

    /// Writes a register. The device sees all earlier writes to memory.
    #[inline]
    pub fn write(&mut self, register: u32, value: u32) {
        match register {
            reg::TDT => self.counts.kicks += 1,
            _ => self.counts.accesses += 1,
        }
        self.registers.write32(register as usize, value);
    }

    /// Returns what has happened to the device, if that can be seen without a register access.
    pub fn is_lost(&self) -> bool {
        self.registers.is_lost()
    }

    /// Returns true if the device answers. One that is gone reads as ones.
    pub fn answers(&mut self) -> bool {
        self.read(reg::STATUS) != u32::MAX && !self.is_lost()
    }

    /// Resets the device.
    ///
    /// # Errors
    /// The device does not end its reset.
    pub fn reset(&mut self) -> Result<(), PciError> {
        self.stop();
        self.until("does not end its reset", |nic| nic.read(reg::CTRL) & reg::CTRL_RST == 0)?;
        self.mask(u32::MAX);
        self.clear();
        Ok(())
    }

    /// Ends interrupts and all access to memory by a reset.
    pub fn stop(&mut self) {
        self.mask(u32::MAX);
        self.write(reg::RCTL, 0);
        self.write(reg::TCTL, reg::TCTL_PSP);
        let control = self.read(reg::CTRL);
        self.write(reg::CTRL, control | reg::CTRL_RST);
    }

    /// Returns the station address, which the device has taken from its EEPROM after the reset.
    ///
    /// # Errors
    /// The device has none.
    pub fn address(&mut self) -> Result<[u8; 6], PciError> {
        let (low, high) = (self.read(reg::RAL0).to_le_bytes(), self.read(reg::RAH0));
        let [fifth, sixth, ..] = high.to_le_bytes();
        let mac = [low[0], low[1], low[2], low[3], fifth, sixth];
        if high & reg::RAH_AV == 0 || high == u32::MAX || mac == [0; 6] {
            return Err(self.lacks("has no station address after its reset"));
        }
        Ok(mac)
    }

    /// Enables the transmit ring and the receive ring: addresses as the device sees them, and numbers of descriptors. `csb`: address of
    /// a status block. `buffer`: bytes of a receive buffer.
    pub fn start(&mut self, tx: (u64, u32), rx: (u64, u32), csb: Option<u64>, buffer: u32) {
        let control = self.read(reg::CTRL);
        self.write(reg::CTRL, control | reg::CTRL_SLU | reg::CTRL_ASDE);
        if self.model == Model::Express {
            self.write(reg::RFCTL, reg::RFCTL_EXTEN);
        }
        for (register, value) in [
            (reg::TDLEN, tx.1 * 16),
            (reg::TDBAH, (tx.0 >> 32) as u32),
            (reg::TDBAL, tx.0 as u32),
            (reg::TDH, 0),
            (reg::TDT, 0),
            (reg::TIPG, 8 | 8 << 10 | 6 << 20),
            (reg::TIDV, 0),
            (reg::TADV, 0),
            (reg::RDTR, 0),
            (reg::RADV, 0),
            (reg::RDLEN, rx.1 * 16),
            (reg::RDBAH, (rx.0 >> 32) as u32),
            (reg::RDBAL, rx.0 as u32),
            (reg::RDH, 0),
            (reg::RDT, 0),
        ] {
            self.write(register, value);
        }
        if let Some(address) = csb {
            self.write(reg::CSBAH, (address >> 32) as u32);
            self.write(reg::CSBAL, address as u32);
        }
        self.write(reg::TCTL, reg::TCTL_EN | reg::TCTL_PSP | 15 << reg::TCTL_CT | 64 << reg::TCTL_COLD);
        let size = receive_size(self.model.receives(buffer)).unwrap_or(0);
        // Frames to all addresses: the table of groups does not matter.
        let all = reg::RCTL_UPE | reg::RCTL_MPE | reg::RCTL_BAM;
        self.write(reg::RCTL, reg::RCTL_EN | reg::RCTL_SECRC | all | size);
    }

    /// Waits for the link.
    ///
    /// # Errors
    /// There is none.
    pub fn await_link(&mut self) -> Result<(), PciError> {
        self.until("has no link: is its cable plugged in?", |nic| nic.read(reg::STATUS) & reg::STATUS_LU != 0)
    }

    /// Lets the device interrupt for these causes, too.
    pub fn unmask(&mut self, causes: u32) {
        if causes != 0 {
            self.write(reg::IMS, causes);
        }
    }

    /// Lets the device no longer interrupt for these causes.
    pub fn mask(&mut self, causes: u32) {
        if causes != 0 {
            self.write(reg::IMC, causes);
        }
    }

    /// Forgets the causes so far, which ends the present interrupt.
    pub fn clear(&mut self) {
        self.read(reg::ICR);
    }

    fn until(&mut self, otherwise: &str, mut done: impl FnMut(&mut Nic) -> bool) -> Result<(), PciError> {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            if Instant::now() >= deadline {
                return Err(self.lacks(otherwise));
            }
            // No event tells that a register has changed.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn lacks(&self, what: &str) -> PciError {
        PciError::Lacks { address: self.name.clone(), what: what.to_owned() }
    }
}
