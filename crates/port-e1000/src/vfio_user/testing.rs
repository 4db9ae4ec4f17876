//! A function for tests, whose registers are memory, and the messages that a front end may send to it.

// Tests and the fuzzer each use a part of this module.
#![allow(dead_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::pci::{Bar, CONFIG_BYTES, Capability, ConfigSpace, PciIds};
use super::{BadAccess, CONFIG_REGION, Dma, Function, Interrupts, Irqs, MapArea, Observer, REGIONS, RegionInfo};
#[cfg(test)]
pub use ringway_port::front_end::testing::count;
pub use ringway_port::front_end::testing::{memfd, new_eventfd};
use ringway_port::guest::GuestMemory;

/// Bytes of the card's registers.
pub const BAR: u64 = 0x4000;
/// The part of the registers that can be mapped.
pub const AREA: MapArea = MapArea { offset: 0x1000, size: 0x2000 };
/// An offset that cannot be accessed.
pub const HOLE: u64 = 0x3ff0;
/// Interrupts of the card.
pub const IRQS: Irqs = Irqs { intx: 1, msi: 4, msi_x: 5 };

/// An event at a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    Connected(bool),
    /// Readable and writable memory: address and size of each piece.
    Memory(Vec<(u64, u64)>, Vec<(u64, u64)>),
    Wrote(u64, Vec<u8>),
    Unmasked,
    Reset,
    Fault(&'static str, String),
    Refused(&'static str, String),
    /// The port waits for the next front end.
    Gone,
}

struct State {
    registers: Vec<u8>,
    config: ConfigSpace,
    memory: Dma,
    happened: Vec<Happened>,
}

/// A card that records all events.
pub struct Card {
    state: Mutex<State>,
    news: Condvar,
    pub area: OwnedFd,
    pub interrupts: Arc<Interrupts>,
    /// Scheduling policy of the thread that served the card last.
    pub policy: AtomicI32,
}

pub fn config() -> ConfigSpace {
    let (vendor, device, subsystem_vendor, subsystem) = (0x8086, 0x10d3, 0x8086, 0xa01f);
    let ids = PciIds { vendor, device, revision: 3, class: 0x02_0000, subsystem_vendor, subsystem };
    let bars = [Bar::Memory(BAR as u32), Bar::None, Bar::Io(32)];
    ConfigSpace::new(
        &ids,
        &bars,
        &[Capability::power(0xc8), Capability::msi(0xd0, 2), Capability::msi_x(0xa0, 5, (0, 0x3000), (0, 0x3800))],
    )
}

/// Longest wait for an event, as in `ringway-testing`, which fuzz targets do not have.
const PATIENCE: Duration = Duration::from_secs(300);

impl Card {
    pub fn new() -> Arc<Card> {
        let state =
            State { registers: vec![0; BAR as usize], config: config(), memory: Dma::default(), happened: Vec::new() };
        let (area, interrupts) = (memfd(BAR), Arc::default());
        let policy = AtomicI32::new(-1);
        Arc::new(Card { state: Mutex::new(state), news: Condvar::new(), area, interrupts, policy })
    }

    fn note(&self, event: Happened) {
        self.state.lock().happened.push(event);
        self.news.notify_all();
    }

    /// While the result is held, accesses to the registers block.
    pub fn hold(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    /// Returns the events since the last call.
    pub fn happened(&self) -> Vec<Happened> {
        std::mem::take(&mut self.state.lock().happened)
    }

    pub fn memory(&self) -> Dma {
        self.state.lock().memory.clone()
    }

    /// Waits for an event for which `wanted` returns true, and discards those before it.
    pub fn wait_for(&self, wanted: impl Fn(&Happened) -> bool) -> Happened {
        let mut state = self.state.lock();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = state.happened.iter().position(&wanted) {
                return state.happened.drain(..=at).next_back().expect("an event");
            }
            let late = self.news.wait_until(&mut state, until).timed_out();
            assert!(!late, "it did not happen; this did: {:?}", state.happened);
        }
    }

    /// Waits until the front end has lost its connection. Returns the reason.
    pub fn wait_for_fault(&self) -> (&'static str, String) {
        let fault = self.wait_for(|event| matches!(event, Happened::Fault(..)));
        let Happened::Fault(name, text) = fault else { unreachable!() };
        self.wait_for(|event| *event == Happened::Gone);
        (name, text)
    }
}

impl Function for Card {
    fn quota(&self) -> Arc<ringway_memory::Quota> {
        ringway_memory::Quota::of_port(ringway_memory::Limits::PORT)
    }

    fn regions(&self) -> [RegionInfo; REGIONS] {
        let mut regions: [RegionInfo; REGIONS] = Default::default();
        let memory = self.area.as_fd().try_clone_to_owned().ok();
        regions[0] = RegionInfo { size: BAR, access: true, areas: vec![AREA], memory };
        regions[2] = RegionInfo { size: 32, access: true, ..RegionInfo::default() };
        regions[4] = RegionInfo { size: 4096, access: false, ..RegionInfo::default() };
        regions[CONFIG_REGION] = RegionInfo { size: CONFIG_BYTES as u64, access: true, ..RegionInfo::default() };
        regions
    }

    fn irqs(&self) -> Irqs {
        IRQS
    }

    fn read(&self, region: usize, offset: u64, data: &mut [u8]) -> Result<(), BadAccess> {
        let state = self.state.lock();
        match region {
            CONFIG_REGION => state.config.read(offset, data),
            _ if offset >= HOLE => Err(BadAccess),
            _ => {
                data.copy_from_slice(&state.registers[offset as usize..][..data.len()]);
                Ok(())
            }
        }
    }

    fn write(&self, region: usize, offset: u64, data: &[u8]) -> Result<(), BadAccess> {
        {
            let mut state = self.state.lock();
            match region {
                CONFIG_REGION => state.config.write(offset, data)?,
                _ if offset >= HOLE => return Err(BadAccess),
                _ => state.registers[offset as usize..][..data.len()].copy_from_slice(data),
            }
        }
        self.note(Happened::Wrote(offset, data.to_vec()));
        Ok(())
    }

    fn set_memory(&self, memory: Dma) {
        let places = |memory: &GuestMemory| {
            let mut places: Vec<_> = memory.regions().iter().map(|region| (region.guest(), region.size())).collect();
            places.sort_unstable();
            places
        };
        let event = Happened::Memory(places(&memory.readable), places(&memory.writable));
        let before = std::mem::replace(&mut self.state.lock().memory, memory);
        drop(before);
        self.note(event);
    }

    fn unmasked(&self) {
        self.note(Happened::Unmasked);
    }

    fn expects_register_read(&self) -> bool {
        false
    }

    fn reset(&self) {
        self.note(Happened::Reset);
    }

    fn connected(&self) -> io::Result<()> {
        // Field 41 of proc_pid_stat(5), of the calling thread.
        let stat = std::fs::read_to_string("/proc/thread-self/stat")?;
        let policy = stat.rsplit(')').next().and_then(|after| after.split_whitespace().nth(38)?.parse().ok());
        self.policy.store(policy.expect("a policy"), Ordering::Relaxed);
        self.note(Happened::Connected(true));
        Ok(())
    }

    fn disconnected(&self) {
        self.note(Happened::Connected(false));
    }
}

impl Observer for Card {
    fn connected(&self, on: bool) {
        if !on {
            self.note(Happened::Gone);
        }
    }

    fn fault(&self, reason: &'static str, detail: String) {
        self.note(Happened::Fault(reason, detail));
    }

    fn refused(&self, reason: &'static str, detail: String) {
        self.note(Happened::Refused(reason, detail));
    }
}

/// The body of VERSION 0.0.
pub fn version(text: &str) -> Vec<u8> {
    [&[0; 4], text.as_bytes(), &[0]].concat()
}

/// Words of 32 bits in the machine's byte order.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The body of DMA_MAP.
pub fn map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    let numbers = [offset, address, size].map(u64::to_ne_bytes).concat();
    [words(&[32, flags]), numbers].concat()
}

/// The body of DMA_UNMAP.
pub fn unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    [words(&[24, flags]), [address, size].map(u64::to_ne_bytes).concat()].concat()
}

/// The body of REGION_READ or, with data, of REGION_WRITE.
pub fn access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    [&offset.to_ne_bytes()[..], &words(&[region, count]), data].concat()
}

/// A message with its header.
pub fn message(id: u16, command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = 16 + body.len() as u32;
    [&id.to_ne_bytes()[..], &command.to_ne_bytes(), &words(&[size, flags, 0]), body].concat()
}
