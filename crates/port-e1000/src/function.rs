//! The device as a front end sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_memory::Quota;

use ringway_runtime::nanoseconds;

use super::access_counters::Accesses;
use super::chip::{Chip, REGISTER_BYTES};
use super::device::Device;
use super::kept::{Reader, State, Writer};
use super::offsets::{LSC, RING_PAGES, RING_PAGES_END};
use super::registers::{Part, parts};
use super::ring_page::RingPage;
use super::settings::Model;
use crate::vfio_user::{BadAccess, CONFIG_REGION, Dma, Function, Irqs, MapArea, REGIONS, RegionInfo};

/// Indices of the regions: registers, I/O port window, MSI-X tables. The front end emulates the tables itself.
const REGISTERS: usize = 0;
const PORTS: usize = 2;
const TABLES: usize = 3;
/// Offsets in the I/O port window: the register's address, and its value.
const IOADDR: u32 = 0;
const IODATA: u32 = 4;

impl Device {
    fn read_words(&self, offset: u64, data: &mut [u8], mut read: impl FnMut(&Part) -> u32) {
        let mut left = data;
        for part in parts(offset, left.len()) {
            let bytes = read(&part).to_le_bytes();
            let (now, later) = left.split_at_mut(part.len);
            now.copy_from_slice(&bytes[part.from..part.from + part.len]);
            left = later;
        }
    }

    /// Writes words. `kept` returns the present value of a word that is written in part.
    fn write_words(&self, offset: u64, data: &[u8], chip: &mut Chip, kept: impl Fn(&Chip, u32) -> u32, to: To) {
        let mut left = data;
        for part in parts(offset, data.len()) {
            let (now, later) = left.split_at(part.len);
            let mut bytes = if part.len < 4 { kept(chip, part.offset).to_le_bytes() } else { [0; 4] };
            bytes[part.from..part.from + part.len].copy_from_slice(now);
            let value = u32::from_le_bytes(bytes);
            match (to, part.offset) {
                (To::Registers, offset) => self.write_register(chip, offset, value),
                (To::Ports, IOADDR) => chip.io_address = value,
                (To::Ports, IODATA) => {
                    let offset = chip.io_address & !3;
                    if offset < REGISTER_BYTES {
                        self.write_register(chip, offset, value);
                    }
                }
                (To::Ports, _) => {}
            }
            left = later;
        }
    }

    fn read_port(&self, chip: &mut Chip, offset: u32) -> u32 {
        match offset {
            IOADDR => chip.io_address,
            IODATA if chip.io_address < REGISTER_BYTES => {
                let offset = chip.io_address & !3;
                self.read_register(chip, offset)
            }
            _ => 0,
        }
    }

    /// Returns the present value of a register that is plain storage. For other registers it is 0, so that unwritten
    /// bytes count as 0.
    fn kept(&self, chip: &Chip, offset: u32) -> u32 {
        if RingPage::has(offset) { chip.page.get(offset) } else { chip.plain(offset) }
    }
}

#[derive(Clone, Copy)]
enum To {
    Registers,
    Ports,
}

impl Device {
    /// Reads what [`Function::save`] has written after the settings.
    fn restore_all(&self, chip: &mut Chip, from: &mut Reader<'_>) -> Option<()> {
        let has_cable = chip.phy.has_cable();
        chip.restore(from, nanoseconds())?;
        let mut interrupting = self.interrupting();
        interrupting.causes.restore(from)?;
        if chip.phy.set_cable(has_cable) {
            interrupting.causes.set(LSC);
        }
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = from.u64()?;
        }
        self.access_counters.go_on_from(counts);
        interrupting.go_on_from(from.u64()?);
        drop(interrupting);
        self.interrupts().disable_pin(chip.config.has_pin_disabled());
        Some(())
    }
}

impl Function for Device {
    fn quota(&self) -> Arc<Quota> {
        Arc::clone(&self.quota)
    }

    fn regions(&self) -> [RegionInfo; REGIONS] {
        let mut regions: [RegionInfo; REGIONS] = Default::default();
        let region = |size: u64| RegionInfo { size, access: true, ..RegionInfo::default() };
        regions[REGISTERS] = region(REGISTER_BYTES.into());
        regions[CONFIG_REGION] = region(256);
        match self.model {
            Model::E1000 => regions[PORTS] = region(64),
            Model::E1000e => {
                regions[PORTS] = region(32);
                regions[TABLES] = region(0x4000);
            }
        }
        // If no descriptor is left for it, the front end works without the mapping.
        if self.mapped
            && let Ok(file) = self.chip.lock().page.file()
        {
            let (offset, size) = (RING_PAGES.into(), (RING_PAGES_END - RING_PAGES).into());
            regions[REGISTERS].areas = vec![MapArea { offset, size }];
            regions[REGISTERS].memory = Some(file);
        }
        regions
    }

    fn irqs(&self) -> Irqs {
        match self.model {
            Model::E1000 => Irqs { intx: 1, msi: self.csb.into(), msi_x: 0 },
            Model::E1000e => Irqs { intx: 1, msi: 1, msi_x: 5 },
        }
    }

    fn read(&self, region: usize, offset: u64, data: &mut [u8]) -> Result<(), BadAccess> {
        if region != CONFIG_REGION {
            self.access_counters.read();
        }
        let mut chip = self.chip.lock();
        (chip.unread, chip.unsaved) = (false, true);
        match region {
            REGISTERS => self.read_words(offset, data, |part| self.read_register(&mut chip, part.offset)),
            PORTS => self.read_words(offset, data, |part| self.read_port(&mut chip, part.offset)),
            TABLES => data.fill(0),
            CONFIG_REGION => {
                chip.config.set_interrupt(self.interrupting().causes.pin());
                return chip.config.read(offset, data);
            }
            _ => return Err(BadAccess),
        }
        Ok(())
    }

    fn write(&self, region: usize, offset: u64, data: &[u8]) -> Result<(), BadAccess> {
        if region != CONFIG_REGION {
            self.access_counters.write();
        }
        let mut chip = self.chip.lock();
        chip.unsaved |= region != REGISTERS;
        match region {
            REGISTERS => self.write_words(offset, data, &mut chip, |chip, at| self.kept(chip, at), To::Registers),
            PORTS => self.write_words(
                offset,
                data,
                &mut chip,
                |chip, at| if at == IOADDR { chip.io_address } else { self.kept(chip, chip.io_address) },
                To::Ports,
            ),
            TABLES => {}
            CONFIG_REGION => return self.write_config(&mut chip, offset, data),
            _ => return Err(BadAccess),
        }
        Ok(())
    }

    fn set_memory(&self, memory: Dma) {
        // Changes both under both locks: a ring in loopback uses the memory of both.
        let (mut input, mut output) = (self.input.lock(), self.output.lock());
        let old = [std::mem::replace(&mut input.memory, memory.clone()), std::mem::replace(&mut output.memory, memory)];
        drop((input, output));
        // Unmapped here, without a lock.
        drop(old);
    }

    fn unmasked(&self) {
        self.access_counters.unmask();
        self.pin_unmasked();
    }

    fn expects_register_read(&self) -> bool {
        if self.chip.lock().unread {
            return true;
        }
        let interrupting = self.interrupting();
        interrupting.causes.pin() || interrupting.causes.ims() == 0
    }

    fn reset(&self) {
        self.power_on(&mut self.chip.lock());
    }

    fn is_changed(&self) -> bool {
        self.chip.lock().unsaved
    }

    fn save(&self, to: &mut Vec<u8>) {
        let mut writer = Writer(std::mem::take(to));
        writer.raw(&self.identity);
        let mut chip = self.chip.lock();
        chip.save(&mut writer, nanoseconds());
        let interrupting = self.interrupting();
        interrupting.causes.save(&mut writer);
        let Accesses { reads, writes, tails, unmasks, interrupts } =
            self.access_counters.accesses(interrupting.all_raised());
        [reads, writes, tails, unmasks, interrupts].into_iter().for_each(|count| writer.u64(count));
        *to = writer.0;
    }

    fn note_in(&self, state: &Arc<State>) {
        let (mut input, mut output) = (self.input.lock(), self.output.lock());
        (input.state, output.state) = (Arc::clone(state), Arc::clone(state));
    }

    fn memory_file(&self) -> io::Result<Option<OwnedFd>> {
        self.chip.lock().page.file().map(Some)
    }

    fn restore(&self, from: &[u8], memory: Option<OwnedFd>) -> bool {
        let mut from = Reader(from);
        if from.raw(self.identity.len()) != Some(&self.identity) {
            return false;
        }
        let Some(Ok(page)) = memory.map(RingPage::open) else { return false };
        let mut chip = self.chip.lock();
        self.renew_page(&mut chip, &page);
        chip.connected = true;
        self.restore_all(&mut chip, &mut from).filter(|()| from.0.is_empty()).is_some()
    }

    fn resume(&self) {
        let chip = self.chip.lock();
        self.resume_rings(&chip);
        {
            let mut interrupting = self.interrupting();
            // A poller may have raised them while there was no eventfd.
            interrupting.causes.raise_again();
            if chip.is_bus_master() {
                interrupting.causes.assume_ring_causes();
            }
        }
        drop(chip);
        self.settle();
        self.raise_event();
        self.kick();
    }

    fn connected(&self) -> io::Result<()> {
        // The guest before this one may still write to the pages that its front end has.
        let page = RingPage::new()?;
        let mut chip = self.chip.lock();
        self.renew_page(&mut chip, &page);
        chip.connected = true;
        chip.forget();
        self.power_on(&mut chip);
        Ok(())
    }

    fn disconnected(&self) {
        let mut chip = self.chip.lock();
        chip.connected = false;
        chip.forget();
        self.power_on(&mut chip);
    }
}
