//! Ring registers, and what registers say of the rings.

use super::Core;
use crate::e1000::device::Device;
use crate::e1000::offsets::*;
use crate::e1000::rings::{ReceiveSettings, TransmitSettings};
use crate::e1000::sides::{InputSide, Latched, OutputSide, Ring};

/// Longest frame without frame check sequence: 1518 bytes and a VLAN tag; with long packets allowed (RCTL.LPE), and when
/// sending, 16 KiB (SDM 13.4.22 and 3.3.3).
const LONGEST: usize = 1518;
const LONGEST_LONG: usize = 16_384 - 4;

/// Whether a ring is to be found anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::e1000) enum Restart {
    No,
    Yes,
}

impl Restart {
    /// If a control register's enable bit changes.
    pub(super) fn after(before: u32, value: u32, enable: u32) -> Restart {
        if (before ^ value) & enable != 0 { Restart::Yes } else { Restart::No }
    }
}

impl Core {
    pub(in crate::e1000) fn new_input(&self) -> InputSide {
        InputSide {
            memory: Default::default(),
            ring: Ring::Off,
            settings: self.transmit_settings(),
            bounce: Default::default(),
            link: false,
            looped: false,
            sent: Default::default(),
        }
    }

    pub(in crate::e1000) fn new_output(&self) -> OutputSide {
        OutputSide {
            memory: Default::default(),
            ring: Ring::Off,
            settings: self.receive_settings(),
            buffer: self.buffer_bytes(),
            link: false,
            looped: false,
            received: Default::default(),
        }
    }

    fn transmit_settings(&self) -> TransmitSettings {
        let insert = self.registers.get(CTRL) & CTRL_VME != 0;
        TransmitSettings {
            vlan: insert.then(|| self.registers.get(VET) as u16),
            pad: self.registers.get(TCTL) & TCTL_PSP != 0,
            longest: LONGEST_LONG,
        }
    }

    fn receive_settings(&self) -> ReceiveSettings {
        let rctl = self.registers.get(RCTL);
        let longest = if rctl & RCTL_LPE != 0 { LONGEST_LONG } else { LONGEST };
        ReceiveSettings { strip_fcs: rctl & RCTL_SECRC != 0, longest, low: 0 }
    }

    /// Bytes of a receive buffer (RCTL.BSIZE and BSEX).
    fn buffer_bytes(&self) -> usize {
        let rctl = self.registers.get(RCTL);
        let size = 2048 >> (rctl >> 16 & 3);
        match rctl & RCTL_BSEX != 0 {
            true if size < 2048 => size * 16,
            _ => size,
        }
    }
}

impl Device {
    /// A register of the ring pages is written by a message.
    pub(super) fn write_ring_register(&self, core: &Core, offset: u32, value: u32) {
        self.page.set(offset, value & core.registers.mask(offset));
        match offset {
            TDT => {
                self.account.tail();
                self.kick();
            }
            RDT => self.account.tail(),
            TDBAL | TDBAH | TDLEN | TDH => self.apply_transmit(core, Restart::Yes),
            RDBAL | RDBAH | RDLEN | RDH => self.apply_receive(core, Restart::Yes),
            TIDV if value & FLUSH != 0 => {
                self.interrupting().causes.flush_transmit();
                self.settle();
            }
            RDTR if value & FLUSH != 0 => {
                self.interrupting().causes.flush_receive();
                self.settle();
            }
            _ => {}
        }
    }

    fn latch(&self, base: u32, length: u32, head: u32) -> Latched {
        let address = |low: u32| u64::from(self.page.get(low)) & !0xf | u64::from(self.page.get(low + 4)) << 32;
        Latched {
            base: address(base),
            count: (self.page.get(length) & 0xf_ff80) / 16,
            head: self.page.get(head) & 0xffff,
        }
    }

    /// Has the transmit side follow the registers.
    pub(super) fn apply_transmit(&self, core: &Core, restart: Restart) {
        let on = core.registers.get(TCTL) & TCTL_EN != 0;
        let mut side = self.input.lock();
        side.settings = core.transmit_settings();
        (side.link, side.looped) = (core.has_link(), core.loops());
        if restart == Restart::Yes {
            side.ring = if on { Ring::Latched(self.latch(TDBAL, TDLEN, TDH)) } else { Ring::Off };
        }
        let pending = side.pending(self.transmit_tail());
        drop(side);
        if pending {
            self.kick();
        }
    }

    /// Has the receive side follow the registers.
    pub(super) fn apply_receive(&self, core: &Core, restart: Restart) {
        let on = core.registers.get(RCTL) & RCTL_EN != 0;
        let mut side = self.output.lock();
        side.settings = core.receive_settings();
        (side.link, side.looped) = (core.has_link(), core.loops());
        let buffer = core.buffer_bytes();
        let resized = std::mem::replace(&mut side.buffer, buffer) != buffer;
        if restart == Restart::Yes || resized && side.ring.is_on() {
            side.ring = if on { Ring::Latched(self.latch(RDBAL, RDLEN, RDH)) } else { Ring::Off };
        }
    }
}
