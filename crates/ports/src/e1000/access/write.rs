//! The effects of register writes.

use ringway_engine::nanoseconds;

use super::ring::Restart;
use super::{Core, eitr};
use crate::e1000::Model;
use crate::e1000::device::Device;
use crate::e1000::interrupt::Causes;
use crate::e1000::offsets::*;
use crate::e1000::phy;
use crate::e1000::registers::canonical;
use crate::e1000::ring_page::RingPage;
use crate::e1000::rings::Received;
use crate::e1000::sides::Ring;
use crate::vfio_user::BadAccess;

const SYSTIML: u32 = 0xb600;
const SYSTIMH: u32 = 0xb604;
const TIMINCA: u32 = 0xb608;

impl Device {
    /// Writes a register.
    pub(in crate::e1000) fn write_register(&self, core: &mut Core, offset: u32, value: u32) {
        let offset = canonical(offset);
        core.unread |= !matches!(offset, TDT | TDT1 | RDT);
        if RingPage::has(offset) {
            return self.write_ring_register(core, offset, value);
        }
        match offset {
            CTRL => self.write_control(core, value),
            CTRL_EXT => {
                core.registers.set(CTRL_EXT, value);
                self.with_causes(|causes| causes.set_ctrl_ext(value));
            }
            EECD => core.eeprom.set_control(value),
            EERD => core.eerd = core.eeprom.read(value),
            EEWR if core.model == Model::E1000e => core.eewr = core.eeprom.write(value),
            MDIC => self.write_mdic(core, value),
            ICR => self.with_causes(|causes| causes.acknowledge(value)),
            ICS => self.with_causes(|causes| causes.set(value)),
            IMS => self.with_causes(|causes| causes.unmask(value)),
            IMC => self.with_causes(|causes| causes.mask(value)),
            ITR => self.with_causes(|causes| causes.set_itr(value)),
            IAM if core.model == Model::E1000e => self.with_causes(|causes| causes.set_iam(value)),
            EIAC if core.model == Model::E1000e => self.with_causes(|causes| causes.set_eiac(value)),
            IVAR if core.model == Model::E1000e => self.with_causes(|causes| causes.set_ivar(value)),
            EITR..0x00fc if core.model == Model::E1000e => {
                self.with_causes(|causes| causes.set_eitr(eitr(offset), value));
            }
            RCTL => {
                let restart = Restart::after(core.registers.get(RCTL), value, RCTL_EN);
                core.registers.set(RCTL, value);
                self.apply_receive(core, restart);
                self.apply_transmit(core, &[]);
            }
            TCTL => {
                let rings: &[u32] = match Restart::after(core.registers.get(TCTL), value, TCTL_EN) {
                    Restart::Yes => &[0, SECOND],
                    Restart::No => &[],
                };
                core.registers.set(TCTL, value);
                self.apply_transmit(core, rings);
            }
            VET => {
                core.registers.set(VET, value);
                self.apply_receive(core, Restart::No);
                self.apply_transmit(core, &[]);
            }
            RXCSUM | RFCTL | MTA..RA_END | VFTA..VFTA_END => {
                core.registers.set(offset, value);
                self.apply_receive(core, Restart::No);
            }
            SYSTIML if core.model == Model::E1000e => core.time.set_low(value, nanoseconds()),
            SYSTIMH if core.model == Model::E1000e => core.time.set_high(value, nanoseconds()),
            TIMINCA if core.model == Model::E1000e => core.time.set_increment(value, nanoseconds()),
            _ => core.registers.set(offset, value),
        }
    }

    /// Changes the interrupt registers, and raises the interrupts that follow.
    fn with_causes(&self, change: impl FnOnce(&mut Causes)) {
        change(&mut self.interrupting().causes);
        self.settle();
    }

    fn write_control(&self, core: &mut Core, value: u32) {
        let link = core.has_link();
        if value & CTRL_PHY_RST != 0 {
            core.phy.reset();
        }
        if value & CTRL_RST != 0 {
            return self.reset_registers(core);
        }
        core.registers.set(CTRL, value);
        self.apply_receive(core, Restart::No);
        self.apply_transmit(core, &[]);
        if core.has_link() != link || value & CTRL_PHY_RST != 0 {
            self.with_causes(|causes| causes.set(LSC));
        }
    }

    /// Stops both rings before their registers change. Otherwise a poller could, with a changed tail, take descriptors
    /// again that were sent already.
    fn rest(&self) {
        let mut input = self.input.lock();
        (input.ring, input.other) = (Ring::Off, Ring::Off);
        drop(input);
        let mut output = self.output.lock();
        output.ring = Ring::Off;
        output.forget();
        self.tell_of_losses(output);
    }

    /// Software reset. Keeps the status block: FreeBSD's driver writes the block's address before it resets the NIC.
    fn reset_registers(&self, core: &mut Core) {
        self.rest();
        core.reset(&self.page);
        self.interrupting().causes.reset();
        self.apply_receive(core, Restart::Yes);
        self.apply_transmit(core, &[0, SECOND]);
        self.settle();
    }

    fn write_mdic(&self, core: &mut Core, value: u32) {
        let looped = core.loops();
        let accessed = core.phy.access(value);
        core.mdic = accessed.mdic;
        if accessed.link_changed || core.loops() != looped {
            self.apply_receive(core, Restart::No);
            self.apply_transmit(core, &[]);
        }
        let done = if value & phy::INTERRUPT != 0 { MDAC } else { 0 };
        let changed = if accessed.link_changed { LSC } else { 0 };
        if done | changed != 0 {
            self.with_causes(|causes| causes.set(done | changed));
        }
    }

    /// Plugs the cable in or out.
    pub(in crate::e1000) fn set_cable(&self, on: bool) {
        let mut core = self.core.lock();
        if core.phy.set_cable(on) {
            self.apply_receive(&core, Restart::No);
            self.apply_transmit(&core, &[]);
            self.with_causes(|causes| causes.set(LSC));
        }
    }

    /// Restores the state after power-on.
    pub(in crate::e1000) fn power_on(&self, core: &mut Core) {
        self.rest();
        self.forget_block();
        self.forget_counts();
        core.power_on();
        self.reset_registers(core);
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
    pub(in crate::e1000) fn write_config(&self, core: &mut Core, offset: u64, data: &[u8]) -> Result<(), BadAccess> {
        let (before, disabled) = (core.masters(), core.config.has_pin_disabled());
        core.config.write(offset, data)?;
        if core.config.has_pin_disabled() != disabled {
            self.disable_pin(!disabled);
        }
        let now = core.masters();
        if now != before {
            if before {
                self.forget_block();
            }
            self.apply_receive(core, Restart::No);
            self.apply_transmit(core, &[]);
        }
        Ok(())
    }
}
