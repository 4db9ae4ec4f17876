//! The registers of a NIC, in region 0, and the configuration space, in region 7.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_memory::Mapping;

use super::client::{Region, VfioUser};
use super::counters::Counters;
use super::message::Area;
use super::options::E1000Error;
use crate::area::{Words, words32};

/// Region of the registers.
const BAR0: u32 = 0;
/// Region of the configuration space.
const CONFIG: u32 = 7;

/// Offsets and bits of registers (8254x software developer's manual, chapter 13; 82574 datasheet, chapter 10).
pub mod register {
    #![allow(missing_docs, reason = "the names of the manual")]
    pub const CTRL: u32 = 0x0000;
    pub const CTRL_ASDE: u32 = 1 << 5;
    pub const CTRL_SLU: u32 = 1 << 6;
    pub const CTRL_RST: u32 = 1 << 26;
    pub const STATUS: u32 = 0x0008;
    pub const STATUS_LU: u32 = 1 << 1;
    pub const EERD: u32 = 0x0014;
    pub const CTRL_EXT: u32 = 0x0018;
    pub const CTRL_EXT_IAME: u32 = 1 << 27;
    pub const ICR: u32 = 0x00c0;
    pub const ITR: u32 = 0x00c4;
    pub const ICS: u32 = 0x00c8;
    pub const IMS: u32 = 0x00d0;
    pub const IMC: u32 = 0x00d8;
    pub const IAM: u32 = 0x00e0;
    pub const TXDW: u32 = 1 << 0;
    pub const LSC: u32 = 1 << 2;
    pub const RXSEQ: u32 = 1 << 3;
    pub const RXDMT0: u32 = 1 << 4;
    pub const RXT0: u32 = 1 << 7;
    pub const RCTL: u32 = 0x0100;
    pub const RCTL_EN: u32 = 1 << 1;
    pub const RCTL_UPE: u32 = 1 << 3;
    pub const RCTL_MPE: u32 = 1 << 4;
    pub const RCTL_LPE: u32 = 1 << 5;
    pub const RCTL_BAM: u32 = 1 << 15;
    pub const RCTL_BSIZE: u32 = 16;
    pub const RCTL_BSEX: u32 = 1 << 25;
    pub const RCTL_SECRC: u32 = 1 << 26;
    pub const TCTL: u32 = 0x0400;
    pub const TCTL_EN: u32 = 1 << 1;
    pub const TCTL_PSP: u32 = 1 << 3;
    pub const TCTL_CT: u32 = 4;
    pub const TCTL_COLD: u32 = 12;
    pub const TIPG: u32 = 0x0410;
    pub const RDBAL: u32 = 0x2800;
    pub const RDBAH: u32 = 0x2804;
    pub const RDLEN: u32 = 0x2808;
    pub const RDH: u32 = 0x2810;
    pub const RDT: u32 = 0x2818;
    pub const RDTR: u32 = 0x2820;
    pub const RADV: u32 = 0x282c;
    pub const CSBAL: u32 = 0x2830;
    pub const CSBAH: u32 = 0x2834;
    pub const TDBAL: u32 = 0x3800;
    pub const TDBAH: u32 = 0x3804;
    pub const TDLEN: u32 = 0x3808;
    pub const TDH: u32 = 0x3810;
    pub const TDT: u32 = 0x3818;
    pub const TIDV: u32 = 0x3820;
    pub const TADV: u32 = 0x382c;
    pub const RFCTL: u32 = 0x5008;
    pub const RFCTL_EXTEN: u32 = 1 << 15;
    pub const MTA: u32 = 0x5200;
    pub const RAL0: u32 = 0x5400;
    pub const RAH0: u32 = 0x5404;
    pub const RAH_AV: u32 = 1 << 31;
}

/// A mapped part of the registers.
#[derive(Debug)]
struct Mapped {
    area: Area,
    words: Words<AtomicU32>,
}

/// Access to a NIC's registers: by memory accesses where they are mapped, otherwise by messages. Counts every access.
#[derive(Debug)]
pub struct Registers {
    client: VfioUser,
    mapped: Vec<Mapped>,
    counters: Counters,
    /// Number of messages before counting began.
    before: (u64, u64),
}

impl Registers {
    /// Registers behind a connection; none of them is mapped.
    pub fn new(client: VfioUser) -> Registers {
        Registers { client, mapped: Vec::new(), counters: Counters::default(), before: (0, 0) }
    }

    /// Maps all areas that the device lets be mapped.
    pub fn map(&mut self) -> Result<(), E1000Error> {
        let Region { areas, file: Some((file, start)), .. } = self.client.region(BAR0)? else { return Ok(()) };
        for area in areas {
            let bytes = usize::try_from(area.size).unwrap_or(usize::MAX);
            let from = start.saturating_add(area.offset);
            let mapping = Arc::new(Mapping::shared_at(file.as_fd(), from, bytes)?);
            let words = words32(&mapping, 0, u32::try_from(bytes / 4).unwrap_or(u32::MAX))?;
            self.mapped.push(Mapped { area, words });
        }
        Ok(())
    }

    /// Returns the connection.
    pub fn client(&mut self) -> &mut VfioUser {
        &mut self.client
    }

    /// Returns the connection, for reading its state.
    pub fn connection(&self) -> &VfioUser {
        &self.client
    }

    /// Resets the counts.
    pub fn count_from_here(&mut self) {
        self.counters = Counters::default();
        self.before = self.client.messages();
    }

    /// Returns the counts.
    pub fn counters(&self) -> Counters {
        let (posted, answered) = self.client.messages();
        Counters { posted: posted - self.before.0, answered: answered - self.before.1, ..self.counters }
    }

    /// Returns the counts, to add events that are seen elsewhere.
    #[inline]
    pub fn counting(&mut self) -> &mut Counters {
        &mut self.counters
    }

    #[inline]
    fn memory(&self, register: u32) -> Option<&AtomicU32> {
        let at = u64::from(register);
        let inside = |mapped: &&Mapped| at >= mapped.area.offset && at - mapped.area.offset < mapped.area.size;
        let mapped = self.mapped.iter().find(inside)?;
        Some(mapped.words.at(((at - mapped.area.offset) / 4) as u32))
    }

    /// Returns true if this register is mapped.
    pub fn is_mapped(&self, register: u32) -> bool {
        self.memory(register).is_some()
    }

    /// Reads a register.
    pub fn read(&mut self, register: u32) -> Result<u32, E1000Error> {
        if let Some(word) = self.memory(register) {
            let value = word.load(Ordering::Acquire);
            self.counters.mapped_accesses += 1;
            return Ok(value);
        }
        self.counters.register_reads += 1;
        let mut bytes = [0; 4];
        self.client.read(BAR0, register.into(), &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes a register. The device sees all earlier writes to memory.
    #[inline]
    pub fn write(&mut self, register: u32, value: u32) -> Result<(), E1000Error> {
        if let Some(word) = self.memory(register) {
            word.store(value, Ordering::Release);
            self.counters.mapped_accesses += 1;
            return Ok(());
        }
        self.counters.register_writes += 1;
        match register {
            register::TDT => self.counters.tx_tail_writes += 1,
            register::RDT => self.counters.rx_tail_writes += 1,
            _ => {}
        }
        self.client.post(BAR0, register.into(), value)
    }

    /// Reads two bytes of the configuration space.
    pub fn config(&mut self, offset: u64) -> Result<u16, E1000Error> {
        let mut bytes = [0; 2];
        self.client.read(CONFIG, offset, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Writes two bytes of the configuration space.
    pub fn set_config(&mut self, offset: u64, value: u16) -> Result<(), E1000Error> {
        self.client.write(CONFIG, offset, &value.to_le_bytes())
    }
}
