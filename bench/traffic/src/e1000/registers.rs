//! The registers of a NIC, in region 0, and the configuration space, in region 7.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_abi::e1000::register;
use ringway_drivers::area::{Words, words32};
use ringway_drivers::e1000::bring_up;
use ringway_drivers::vfio_user::{Area, Region, VfioUser};
use ringway_memory::Mapping;

use super::counters::Counters;
use super::options::E1000Error;

/// Region of the registers.
const BAR0: u32 = 0;
/// Region of the configuration space.
const CONFIG: u32 = 7;

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

impl bring_up::Registers for Registers {
    type Error = E1000Error;

    fn read(&mut self, register: u32) -> Result<u32, E1000Error> {
        Registers::read(self, register)
    }

    fn write(&mut self, register: u32, value: u32) -> Result<(), E1000Error> {
        Registers::write(self, register, value)
    }

    fn unexpected(&self, what: String) -> E1000Error {
        E1000Error::Device { path: self.client.path().to_owned(), what }
    }
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
        Ok(self.client.post(BAR0, register.into(), value)?)
    }

    /// Reads two bytes of the configuration space.
    pub fn config(&mut self, offset: u64) -> Result<u16, E1000Error> {
        let mut bytes = [0; 2];
        self.client.read(CONFIG, offset, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Writes two bytes of the configuration space.
    pub fn set_config(&mut self, offset: u64, value: u16) -> Result<(), E1000Error> {
        Ok(self.client.write(CONFIG, offset, &value.to_le_bytes())?)
    }
}
