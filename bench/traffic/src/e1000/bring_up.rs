//! From a connection to a NIC that is ready to work: the steps of a hypervisor and then of the Linux drivers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use ringway_abi::e1000::register as reg;
use ringway_drivers::e1000::Model;
use ringway_drivers::e1000::bring_up::{self, RingAt, Setup};
use ringway_drivers::vfio_user::{IRQ_INTX, IRQ_MSI, VfioUser};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::options::{E1000Error, E1000Mode, E1000Options};
use super::registers::Registers;
use crate::mac::Mac;

/// The interrupt causes that the driver unmasks.
pub const CAUSES: u32 = reg::TXDW | reg::LSC | reg::RXSEQ | reg::RXDMT0 | reg::RXT0;

/// Subsystem ID of a NIC that offers a communication status block.
const PARAVIRTUAL: u16 = 0x1101;

// Offsets in the configuration space (PCI 3.0, 6.1 and 6.8.1).
const VENDOR: u64 = 0x00;
const DEVICE: u64 = 0x02;
const COMMAND: u64 = 0x04;
const STATUS: u64 = 0x06;
const SUBSYSTEM: u64 = 0x2e;
const CAPABILITIES: u64 = 0x34;
/// Command register: memory space, bus master.
const COMMAND_ON: u16 = 1 << 1 | 1 << 2;
/// Command register: interrupt pin disabled.
const COMMAND_NO_PIN: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const MSI: u16 = 0x05;

/// A NIC after its reset, with known address.
#[derive(Debug)]
pub struct Nic {
    /// The registers.
    pub registers: Registers,
    /// The model.
    pub model: Model,
    /// An eventfd that is written at each interrupt.
    pub interrupt: OwnedFd,
    /// True if interrupts use the pin, which has to be unmasked after each interrupt.
    pub pin: bool,
    /// True if received frames include their frame check sequence.
    pub with_fcs: bool,
    /// The station address.
    pub mac: Mac,
    within: Duration,
}

impl Nic {
    /// Connects to the server at `path`, and checks that its NIC supports the mode.
    pub fn connect(path: &Path, options: &E1000Options) -> Result<Nic, E1000Error> {
        let lacks = |what: String| E1000Error::Lacks { path: path.to_owned(), what };
        let mut registers = Registers::new(VfioUser::connect(path, options.within)?);
        let (vendor, device) = (registers.config(VENDOR)?, registers.config(DEVICE)?);
        let Some(model) = Model::of(vendor, device) else {
            let what = format!("is {vendor:04x}:{device:04x}: 8086:100e (82540EM) or 8086:10d3 (82574L) is needed");
            return Err(lacks(what));
        };
        let subsystem = registers.config(SUBSYSTEM)?;
        if options.mode == E1000Mode::Csb && subsystem != PARAVIRTUAL {
            let what = format!(
                "offers no communication status block (csb = true would): its subsystem is {subsystem:04x}, not 1101"
            );
            return Err(lacks(what));
        }
        if options.mode == E1000Mode::Mapped {
            registers.map()?;
            if !registers.is_mapped(reg::TDT) || !registers.is_mapped(reg::RDT) {
                return Err(lacks("lets no ring registers be mapped (registers = \"mapped\" would)".to_owned()));
            }
        }
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let pin = model == Model::Pro1000;
        let (mac, within) = (Mac([0; 6]), options.within);
        let with_fcs = model == Model::Pro1000 && options.mode != E1000Mode::Csb;
        let mut nic = Nic { registers, model, interrupt, pin, with_fcs, mac, within };
        nic.set_up_function()?;
        bring_up::reset(&mut nic.registers, within)?;
        nic.mac = nic.read_address()?;
        Ok(nic)
    }

    /// Configures interrupts and the PCI function, as a hypervisor and the PCI layer of a kernel do.
    fn set_up_function(&mut self) -> Result<(), E1000Error> {
        let interrupt = self.interrupt.try_clone()?;
        let index = if self.pin { IRQ_INTX } else { IRQ_MSI };
        if self.registers.client().irqs(index)? == 0 {
            return Err(self.unexpected(format!("has no interrupt of kind {index}")));
        }
        self.registers.client().trigger(index, 0, &[interrupt.as_fd()])?;
        let no_pin = if self.pin { 0 } else { COMMAND_NO_PIN };
        self.registers.set_config(COMMAND, COMMAND_ON | no_pin)?;
        if self.pin {
            return Ok(());
        }
        let mut at = if self.registers.config(STATUS)? & STATUS_CAPABILITIES == 0 { 0 } else { CAPABILITIES };
        at = if at == 0 { 0 } else { u64::from(self.registers.config(at)? & 0xfc) };
        // The configuration space has no room for more capabilities.
        for _ in 0..48 {
            if at == 0 {
                break;
            }
            let capability = self.registers.config(at)?;
            if capability & 0xff == MSI {
                let control = self.registers.config(at + 2)?;
                return self.registers.set_config(at + 2, control | 1);
            }
            at = u64::from(capability >> 8 & 0xfc);
        }
        Err(self.unexpected("has message-signalled interrupts but no capability that says so".to_owned()))
    }

    /// Reads the address from the EEPROM (8254x manual, 5.6.1 and 13.4.4; 82574 datasheet, 10.2.2.4).
    fn read_address(&mut self) -> Result<Mac, E1000Error> {
        let (done, shift) = if self.model == Model::Pro1000 { (1 << 4, 8) } else { (1 << 1, 2) };
        let mut mac = [0; 6];
        for (word, bytes) in mac.chunks_exact_mut(2).enumerate() {
            self.registers.write(reg::EERD, (word as u32) << shift | 1)?;
            let mut value = 0;
            self.until("does not read its EEPROM", |registers| {
                value = registers.read(reg::EERD)?;
                Ok(value & done != 0)
            })?;
            bytes.copy_from_slice(&((value >> 16) as u16).to_le_bytes());
        }
        Ok(Mac(mac))
    }

    /// Configures the NIC and enables transmission and reception. `csb` is the address of a status block.
    pub fn start(
        &mut self,
        options: &E1000Options,
        tx: RingAt,
        rx: RingAt,
        csb: Option<u64>,
    ) -> Result<(), E1000Error> {
        let registers = &mut self.registers;
        let Mac(mac) = self.mac;
        registers.write(reg::RAL0, u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]))?;
        registers.write(reg::RAH0, u32::from_le_bytes([mac[4], mac[5], 0, 0]) | reg::RAH_AV)?;
        (0..128).try_for_each(|word| registers.write(reg::MTA + word * 4, 0))?;
        let (throttle, masks_itself) = (options.throttle(), self.model == Model::Express);
        let (buffer, promiscuous, with_fcs) = (options.buffer_size, options.promiscuous, self.with_fcs);
        let setup = Setup { tx, rx, csb, throttle, masks_itself, buffer, promiscuous, with_fcs };
        bring_up::start(registers, self.model, &setup)
    }

    /// Unmasks interrupts, has the device raise one, as Linux does, and waits for it and for the link.
    pub fn awaken(&mut self) -> Result<(), E1000Error> {
        self.registers.write(reg::IMS, CAUSES)?;
        self.registers.read(reg::STATUS)?;
        self.registers.write(reg::ICS, reg::LSC)?;
        self.await_interrupt()?;
        self.until("has no link", |registers| Ok(registers.read(reg::STATUS)? & reg::STATUS_LU != 0))
    }

    /// Waits for an interrupt.
    pub fn await_interrupt(&self) -> Result<(), E1000Error> {
        let timeout = Timespec::try_from(self.within).ok();
        let has_arrived =
            poll(&mut [PollFd::new(&self.interrupt, PollFlags::IN)], timeout.as_ref()).map_err(io::Error::from)?;
        if has_arrived == 0 {
            Err(self.unexpected(format!("makes no interrupt within {:?}", self.within)))
        } else {
            Ok(())
        }
    }

    fn until(
        &mut self,
        otherwise: &str,
        done: impl FnMut(&mut Registers) -> Result<bool, E1000Error>,
    ) -> Result<(), E1000Error> {
        bring_up::until(&mut self.registers, self.within, otherwise, done)
    }

    fn unexpected(&self, what: String) -> E1000Error {
        bring_up::Registers::unexpected(&self.registers, what)
    }
}
