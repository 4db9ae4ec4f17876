//! The registers of a port, except for those of rings and interrupts.

use super::clock::SystemTime;
use super::data_path::ring_location;
use super::eeprom::{Eeprom, Identity, Layout};
use super::kept::{Reader, Writer};
use super::offsets::*;
use super::phy::Phy;
use super::registers::Registers;
use super::ring_page::RingPage;
use super::settings::{Model, Settings};
use super::statistics::Statistics;
use crate::vfio_user::pci::{Bar, CONFIG_BYTES, Capability, ConfigSpace, PciIds};

/// Bytes of the register region.
pub(super) const REGISTER_BYTES: u32 = 0x2_0000;
const INTEL: u16 = 0x8086;
/// Bus master bit of the PCI command register: the device may access memory.
const BUS_MASTER: u16 = 1 << 2;
/// Subsystem ID of a NIC with the paravirtual extension.
const CSB_CARD: u16 = 0x1101;

/// The state behind all registers, except for those of rings and interrupts.
#[derive(Debug)]
pub(super) struct Chip {
    pub(super) model: Model,
    pub(super) config: ConfigSpace,
    pub(super) registers: Registers,
    pub(super) eeprom: Eeprom,
    pub(super) phy: Phy,
    pub(super) statistics: Statistics,
    pub(super) time: SystemTime,
    /// The ring registers.
    pub(super) page: RingPage,
    /// Values of MDIC, EERD and EEWR.
    pub(super) mdic: u32,
    pub(super) eerd: u32,
    pub(super) eewr: u32,
    /// IOADDR: the offset of the register that IODATA accesses.
    pub(super) io_address: u32,
    /// True while a front end is connected.
    pub(super) connected: bool,
    /// True after a write to a register other than a ring's tail, until a register is read.
    pub(super) unread: bool,
    /// True after an access other than a write to a ring's tail, until the state is saved.
    pub(super) unsaved: bool,
}

impl Chip {
    pub(super) fn new(settings: &Settings, page: RingPage) -> Chip {
        let model = settings.model;
        let (device, card, layout) = match model {
            Model::E1000 => (0x100e, 0x001e, Layout::Old),
            Model::E1000e => (0x10d3, 0xa01f, Layout::New),
        };
        let subsystem = if settings.csb { CSB_CARD } else { card };
        let ids = PciIds {
            vendor: INTEL,
            device,
            revision: if model == Model::E1000 { 3 } else { 0 },
            class: 0x02_0000,
            subsystem_vendor: INTEL,
            subsystem,
        };
        let identity = Identity { mac: settings.mac, device, subsystem_vendor: INTEL, subsystem };
        let mut chip = Chip {
            model,
            config: config(model, &ids, settings.csb),
            registers: Registers::new(model),
            eeprom: Eeprom::new(&identity, layout),
            phy: Phy::new(model, settings.link),
            statistics: Statistics::default(),
            time: SystemTime::default(),
            page,
            mdic: 0,
            eerd: 0,
            eewr: 0,
            io_address: 0,
            connected: false,
            unread: false,
            unsaved: true,
        };
        chip.registers.set_station(settings.mac);
        chip.reset_page();
        chip
    }

    /// Returns the bits that the cause registers of this model have.
    pub(super) fn known_causes(&self) -> u32 {
        match self.model {
            Model::E1000 => 0x0001_ffff,
            Model::E1000e => 0x01f7_ffff,
        }
    }

    /// Software reset (CTRL.RST) of everything except for the PHY, the EEPROM and the configuration space.
    pub(super) fn reset(&mut self) {
        self.registers.reset();
        self.registers.set_station(self.eeprom.mac());
        self.reset_page();
        self.time = SystemTime::default();
        self.eeprom.reset();
        (self.mdic, self.eerd, self.eewr) = (0, 0, 0);
    }

    /// Power-on reset of what a software reset keeps.
    pub(super) fn power_on(&mut self) {
        self.registers = Registers::new(self.model);
        self.phy.reset();
        self.statistics = Statistics::default();
        self.config.reset();
        self.io_address = 0;
    }

    /// Restores the EEPROM, which keeps its contents without power: the next front end belongs to another guest.
    pub(super) fn forget(&mut self) {
        self.eeprom.restore();
    }

    /// Appends all of this except for the ring registers, which are in a file.
    pub(super) fn save(&mut self, to: &mut Writer, now: u64) {
        self.unsaved = false;
        to.raw(&self.config.written());
        self.registers.save(to);
        self.eeprom.save(to);
        self.phy.save(to);
        self.statistics.save(to);
        self.time.save(to, now);
        to.u32s(&[self.mdic, self.eerd, self.eewr, self.io_address]);
    }

    /// Reads what [`Chip::save`] has written.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>, now: u64) -> Option<()> {
        self.config.set_written(from.raw(CONFIG_BYTES)?.first_chunk()?);
        self.registers.restore(from)?;
        self.eeprom.restore_from(from)?;
        self.phy.restore(from)?;
        self.statistics.restore(from)?;
        self.time.restore(from, now)?;
        (self.mdic, self.eerd, self.eewr, self.io_address) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
        Some(())
    }

    /// Returns true if the device may access guest memory.
    pub(super) fn is_bus_master(&self) -> bool {
        self.config.command() & BUS_MASTER != 0
    }

    /// Writes the reset values of the ring pages.
    fn reset_page(&self) {
        self.page.set_all(self.registers.ring_resets());
    }

    /// Returns true if the MAC sees a link.
    pub(super) fn has_link(&self) -> bool {
        self.phy.has_link() && self.registers.get(CTRL) & CTRL_SLU != 0
    }

    /// Returns true if frames can flow.
    pub(super) fn can_move_frames(&self) -> bool {
        self.has_link() && self.is_bus_master()
    }

    /// Returns true if sent frames are looped back.
    pub(super) fn is_loopback(&self) -> bool {
        self.phy.loops() || self.registers.get(RCTL) & RCTL_LBM != 0
    }

    /// Returns whether a front end is connected, whether the link is up, and the lengths of the transmit and the
    /// receive ring (0 if off).
    pub(super) fn status(&self) -> (bool, bool, [u32; 2]) {
        let ring = |on: bool, low: u32| if on { ring_location(&self.page, low).1 } else { 0 };
        let transmit = ring(self.registers.get(TCTL) & TCTL_EN != 0, TDBAL);
        let receive = ring(self.registers.get(RCTL) & RCTL_EN != 0, RDBAL);
        (self.connected, self.has_link(), [transmit, receive])
    }
}

/// Returns the index of the EITR register at `offset`, which is in the range of these registers.
pub(super) fn eitr(offset: u32) -> usize {
    (offset.saturating_sub(EITR) / 4) as usize
}

/// Returns the configuration space of a model.
fn config(model: Model, ids: &PciIds, csb: bool) -> ConfigSpace {
    match model {
        Model::E1000 => {
            let bars = [Bar::Memory(REGISTER_BYTES), Bar::None, Bar::Io(64)];
            let power = Capability::power(0xdc);
            // MSI is where the manual has it. The drivers of the plain NIC do not use it.
            let capabilities = if csb { vec![power, Capability::msi(0xf0, 0)] } else { vec![power] };
            ConfigSpace::new(ids, &bars, &capabilities)
        }
        Model::E1000e => {
            let bars = [Bar::Memory(REGISTER_BYTES), Bar::None, Bar::Io(32), Bar::Memory(0x4000)];
            let capabilities =
                [Capability::power(0xc8), Capability::msi(0xd0, 0), Capability::msi_x(0xa0, 5, (3, 0), (3, 0x2000))];
            ConfigSpace::new(ids, &bars, &capabilities)
        }
    }
}
