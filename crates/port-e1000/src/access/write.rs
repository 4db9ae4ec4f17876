//! The effects of register writes.

use ringway_runtime::nanoseconds;

use super::ring::Restart;
use crate::chip::{Chip, eitr};
use crate::data_path::Ring;
use crate::device::Device;
use crate::interrupt::Causes;
use crate::offsets::*;
use crate::phy;
use crate::registers::canonical;
use crate::ring_page::RingPage;
use crate::rings::Received;
use crate::settings::Model;
use crate::vfio_user::BadAccess;

const SYSTIML: u32 = 0xb600;
const SYSTIMH: u32 = 0xb604;
const TIMINCA: u32 = 0xb608;

impl Device {
    /// Writes a register.
    pub(crate) fn write_register(&self, chip: &mut Chip, offset: u32, value: u32) {
        let offset = canonical(offset);
        let is_tail = matches!(offset, TDT | TDT1 | RDT);
        (chip.unread, chip.unsaved) = (chip.unread | !is_tail, chip.unsaved | !is_tail);
        if RingPage::has(offset) {
            return self.write_ring_register(chip, offset, value);
        }
        match offset {
            CTRL => self.write_control(chip, value),
            CTRL_EXT => {
                chip.registers.set(CTRL_EXT, value);
                self.with_causes(|causes| causes.set_ctrl_ext(value));
            }
            EECD => chip.eeprom.set_control(value),
            EERD => chip.eerd = chip.eeprom.read(value),
            EEWR if chip.model == Model::E1000e => chip.eewr = chip.eeprom.write(value),
            MDIC => self.write_mdic(chip, value),
            ICR => self.with_causes(|causes| causes.acknowledge(value)),
            ICS => self.set_causes(value),
            IMS => self.with_causes(|causes| causes.unmask(value)),
            IMC => self.with_causes(|causes| causes.mask(value)),
            ITR => self.with_causes(|causes| causes.set_itr(value)),
            IAM if chip.model == Model::E1000e => self.with_causes(|causes| causes.set_iam(value)),
            EIAC if chip.model == Model::E1000e || self.csb => self.with_causes(|causes| causes.set_eiac(value)),
            IVAR if chip.model == Model::E1000e => self.with_causes(|causes| causes.set_ivar(value)),
            EITR..0x00fc if chip.model == Model::E1000e => {
                self.with_causes(|causes| causes.set_eitr(eitr(offset), value));
            }
            RCTL => {
                let restart = Restart::after(chip.registers.get(RCTL), value, RCTL_EN);
                chip.registers.set(RCTL, value);
                self.apply_receive(chip, restart);
                self.apply_transmit(chip, &[]);
            }
            TCTL => {
                let rings: &[u32] = match Restart::after(chip.registers.get(TCTL), value, TCTL_EN) {
                    Restart::Yes => &[0, SECOND],
                    Restart::No => &[],
                };
                chip.registers.set(TCTL, value);
                self.apply_transmit(chip, rings);
            }
            VET => {
                chip.registers.set(VET, value);
                self.apply_receive(chip, Restart::No);
                self.apply_transmit(chip, &[]);
            }
            RXCSUM | RFCTL | MTA..RA_END | VFTA..VFTA_END => {
                chip.registers.set(offset, value);
                self.apply_receive(chip, Restart::No);
            }
            SYSTIML if chip.model == Model::E1000e => chip.time.set_low(value, nanoseconds()),
            SYSTIMH if chip.model == Model::E1000e => chip.time.set_high(value, nanoseconds()),
            TIMINCA if chip.model == Model::E1000e => chip.time.set_increment(value, nanoseconds()),
            _ => chip.registers.set(offset, value),
        }
    }

    /// Changes the interrupt registers, takes an interrupt back that has lost its causes, and raises those that follow.
    pub(super) fn with_causes<R>(&self, change: impl FnOnce(&mut Causes) -> R) -> R {
        let mut interrupting = self.interrupting();
        let up = interrupting.causes.pin();
        let result = change(&mut interrupting.causes);
        let lowered = up && !interrupting.causes.pin();
        drop(interrupting);
        if lowered && self.interrupts().withdraw_pin() {
            self.pin_unmasked();
        }
        self.settle();
        result
    }

    /// Sets causes that belong to no ring, and tells a guest with a status block to read them.
    fn set_causes(&self, causes: u32) {
        self.interrupting().causes.set(causes);
        if self.csb {
            self.input.lock().tell_causes();
            // A poller may have sent a message meanwhile.
            self.interrupting().causes.tell_again(causes);
        }
        self.settle();
    }

    fn write_control(&self, chip: &mut Chip, value: u32) {
        let link = chip.has_link();
        if value & CTRL_PHY_RST != 0 {
            chip.phy.reset();
        }
        if value & CTRL_RST != 0 {
            return self.reset_registers(chip);
        }
        chip.registers.set(CTRL, value);
        self.apply_receive(chip, Restart::No);
        self.apply_transmit(chip, &[]);
        if chip.has_link() != link || value & CTRL_PHY_RST != 0 {
            self.set_causes(LSC);
        }
    }

    /// Stops both rings before their registers change. Otherwise a poller could, with a changed tail, take descriptors
    /// again that were sent already.
    fn rest(&self) {
        let mut input = self.input.lock();
        (input.ring, input.other) = (Ring::Off, Ring::Off);
        input.forget_places(&[0, SECOND]);
        drop(input);
        let mut output = self.output.lock();
        output.ring = Ring::Off;
        output.forget_place();
        output.forget();
        self.tell_of_losses(output);
    }

    /// Software reset. Keeps the status block: FreeBSD's driver writes the block's address before it resets the NIC.
    fn reset_registers(&self, chip: &mut Chip) {
        self.rest();
        chip.reset();
        self.with_causes(Causes::reset);
        self.apply_receive(chip, Restart::Yes);
        self.apply_transmit(chip, &[0, SECOND]);
        self.settle();
    }

    fn write_mdic(&self, chip: &mut Chip, value: u32) {
        let looped = chip.is_loopback();
        let accessed = chip.phy.access(value);
        chip.mdic = accessed.mdic;
        if accessed.link_changed || chip.is_loopback() != looped {
            self.apply_receive(chip, Restart::No);
            self.apply_transmit(chip, &[]);
        }
        let done = if value & phy::INTERRUPT != 0 { MDAC } else { 0 };
        let changed = if accessed.link_changed { LSC } else { 0 };
        if done | changed != 0 {
            self.set_causes(done | changed);
        }
    }

    /// Plugs the cable in or out.
    pub(crate) fn set_cable(&self, on: bool) {
        let mut chip = self.chip.lock();
        if chip.phy.set_cable(on) {
            self.apply_receive(&chip, Restart::No);
            self.apply_transmit(&chip, &[]);
            self.set_causes(LSC);
        }
    }

    /// Gives the device other pages. When this returns, no thread looks at the old ones any more.
    pub(crate) fn renew_page(&self, chip: &mut Chip, page: &RingPage) {
        // No ring continues with positions of the other pages.
        self.rest();
        let old = {
            let (mut input, mut output) = (self.input.lock(), self.output.lock());
            [&mut chip.page, &mut input.page, &mut output.page].map(|held| std::mem::replace(held, page.clone()))
        };
        // Unmapped here, without the locks of the sides.
        drop(old);
    }

    /// Restores the state after power-on.
    pub(crate) fn power_on(&self, chip: &mut Chip) {
        self.rest();
        self.forget_block();
        self.forget_counts();
        chip.power_on();
        self.reset_registers(chip);
        // No cause is pending that the pin would have to be raised for.
        self.disable_pin(false);
    }

    /// Drops the counts of the data path: the statistics registers begin at 0.
    fn forget_counts(&self) {
        {
            let mut input = self.input.lock();
            (input.sent, input.segmented) = Default::default();
        }
        self.output.lock().received = Received::default();
        self.interrupting().take_raised();
    }

    /// Writes the configuration space. Without bus mastering no frame flows in either direction: an operating system
    /// that starts another disables bus mastering before it hands over the memory (PCI 3.0, 6.2.2).
    pub(crate) fn write_config(&self, chip: &mut Chip, offset: u64, data: &[u8]) -> Result<(), BadAccess> {
        let (before, disabled) = (chip.is_bus_master(), chip.config.has_pin_disabled());
        chip.config.write(offset, data)?;
        if chip.config.has_pin_disabled() != disabled {
            self.disable_pin(!disabled);
        }
        let now = chip.is_bus_master();
        if now != before {
            if before {
                self.forget_block();
            }
            self.apply_receive(chip, Restart::No);
            self.apply_transmit(chip, &[]);
        }
        Ok(())
    }
}
