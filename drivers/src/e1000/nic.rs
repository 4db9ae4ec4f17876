//! The mapped registers of a NIC on a PCI bus, counted.

use std::time::Duration;

use ringway_abi::e1000::register as reg;

use super::bring_up::{self, Model, Registers as _, RingAt, Setup};
use crate::pci::{PciError, Registers};

/// The interrupt causes of received frames: received; few descriptors left; none left.
pub const RECEIVED: u32 = reg::RXT0 | reg::RXDMT0 | reg::RXO;
/// The interrupt cause of sent frames: a descriptor was written back.
pub const SENT: u32 = reg::TXDW;
/// The longest time until a NIC has reset itself or has a link.
const PATIENCE: Duration = Duration::from_secs(5);
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
        bring_up::reset(self, PATIENCE)
    }

    /// Ends interrupts and all access to memory by a reset.
    pub fn stop(&mut self) {
        // An access to mapped registers does not fail.
        let _ = bring_up::stop(self);
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
            return Err(self.unexpected("has no station address after its reset".to_owned()));
        }
        Ok(mac)
    }

    /// Enables the transmit ring and the receive ring. `csb`: address of a status block. `buffer`: bytes of a receive buffer.
    pub fn start(&mut self, tx: RingAt, rx: RingAt, csb: Option<u64>, buffer: u32) {
        let (model, buffer) = (self.model, self.model.receives(buffer));
        // Frames to all addresses: the table of groups does not matter.
        let promiscuous = true;
        let setup = Setup { tx, rx, csb, throttle: 0, masks_itself: false, buffer, promiscuous, with_fcs: false };
        // See `stop`.
        let _ = bring_up::start(self, model, &setup);
    }

    /// Waits for the link.
    ///
    /// # Errors
    /// There is none.
    pub fn await_link(&mut self) -> Result<(), PciError> {
        bring_up::until(self, PATIENCE, "has no link: is its cable plugged in?", |nic| {
            Ok(nic.read(reg::STATUS) & reg::STATUS_LU != 0)
        })
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
}

impl bring_up::Registers for Nic {
    type Error = PciError;

    fn read(&mut self, register: u32) -> Result<u32, PciError> {
        Ok(Nic::read(self, register))
    }

    fn write(&mut self, register: u32, value: u32) -> Result<(), PciError> {
        Nic::write(self, register, value);
        Ok(())
    }

    fn unexpected(&self, what: String) -> PciError {
        PciError::Lacks { address: self.name.clone(), what }
    }
}
