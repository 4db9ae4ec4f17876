//! The effects of register reads.

use ringway_runtime::nanoseconds;

use crate::chip::{Chip, eitr};
use crate::device::Device;
use crate::interrupt::Causes;
use crate::offsets::*;
use crate::registers::canonical;
use crate::ring_page::RingPage;
use crate::rings::{Received, Traffic};
use crate::settings::Model;

/// SWSM.SMBI: a semaphore bit. The reader that gets 0 owns it.
const SWSM_SMBI: u32 = 1;
/// EEMNGCTL: configuration is done.
const EEMNGCTL_DONE: u32 = 1 << 18;
const SYSTIML: u32 = 0xb600;
const SYSTIMH: u32 = 0xb604;
const TIMINCA: u32 = 0xb608;

impl Device {
    /// Reads a register.
    pub(crate) fn read_register(&self, chip: &mut Chip, offset: u32) -> u32 {
        let offset = canonical(offset);
        if RingPage::has(offset) {
            // An alias may be in the page, too. An offset in the page without a register reads as the value written to
            // it.
            return chip.page.get(offset);
        }
        match offset {
            STATUS => chip.device_status(),
            EECD => chip.eeprom.control(),
            EERD => chip.eerd,
            EEWR if chip.model == Model::E1000e => chip.eewr,
            MDIC => chip.mdic,
            ICR => self.with_causes(Causes::read),
            IMS => self.interrupting().causes.ims(),
            ICS | IMC => 0,
            ITR => self.interrupting().causes.itr(),
            PBA => chip.packet_buffer(),
            STATISTICS..STATISTICS_END => self.read_statistics(chip, offset),
            EIAC if self.csb => self.interrupting().causes.automatic()[1],
            _ if chip.model == Model::E1000 => chip.registers.get(offset),
            IAM => self.interrupting().causes.automatic()[0],
            EIAC => self.interrupting().causes.automatic()[1],
            IVAR => self.interrupting().causes.automatic()[2],
            EITR..0x00fc => self.interrupting().causes.eitr(eitr(offset)),
            EEMNGCTL => EEMNGCTL_DONE,
            SWSM => {
                let value = chip.registers.get(SWSM);
                chip.registers.set(SWSM, value | SWSM_SMBI);
                value
            }
            SYSTIML => chip.time.low(nanoseconds()),
            SYSTIMH => chip.time.high(),
            TIMINCA => chip.time.increment(),
            _ => chip.registers.get(offset),
        }
    }

    /// Reads a statistics register, after the counts of the data path have been added to the registers.
    fn read_statistics(&self, chip: &mut Chip, offset: u32) -> u32 {
        let (sent, [segmented, failed]) = {
            let mut side = self.input.lock();
            (std::mem::take(&mut side.sent), std::mem::take(&mut side.segmented))
        };
        chip.statistics.segmented(segmented, failed);
        if sent != Traffic::default() {
            chip.statistics.sent(&sent);
        }
        let received = std::mem::take(&mut self.output.lock().received);
        if received != Received::default() {
            chip.statistics.received(&received);
        }
        let raised = self.interrupting().take_raised();
        if chip.model == Model::E1000e {
            chip.statistics.interrupts(raised);
        }
        chip.statistics.read(offset)
    }
}

impl Chip {
    fn device_status(&self) -> u32 {
        let link = if self.has_link() { STATUS_LU } else { 0 };
        let master = self.model == Model::E1000e && self.registers.get(CTRL) & CTRL_GIO_DISABLE == 0;
        let master = if master { STATUS_GIO } else { 0 };
        STATUS_FD | link | STATUS_SPEED_1000 | STATUS_ASDV_1000 | master
    }

    /// PBA: the packet buffer that is not used for receiving is used for transmitting. In KiB.
    fn packet_buffer(&self) -> u32 {
        let all: u32 = if self.model == Model::E1000e { 40 } else { 64 };
        let receive = self.registers.get(PBA) & 0xff;
        receive | all.saturating_sub(receive) << 16
    }

    /// Returns a register that is plain storage, and 0 for other registers.
    pub(crate) fn plain(&self, offset: u32) -> u32 {
        self.registers.get(canonical(offset))
    }
}
