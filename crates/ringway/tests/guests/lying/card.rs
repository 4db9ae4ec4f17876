//! An 82540EM on a vfio-user socket that carries frames, and lies when it is told to.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_guests::Nic;
use ringway_memory::{Limits, Quota};
use ringway_port::SocketAccess;
use ringway_port_e1000::vfio_user::pci::{Bar, Capability, ConfigSpace, PciIds};
use ringway_port_e1000::vfio_user::{
    BadAccess, CONFIG_REGION, Dma, Function, Interrupts, Irqs, Mode, Observer, REGIONS, RegionInfo, Server,
    ServerSettings,
};

use super::chip::{CSBAL, CTRL, CTRL_RST, Chip, LSC, RCTL, RDH, RDT, TCTL, TDH, TDT};
use super::lie::{Interrupting, Lie};
use super::rings::{self, Frames, Shared};
use super::station;

const REGISTER_BYTES: u32 = 0x2_0000;
/// Regions: registers, and the window of I/O ports.
const REGISTERS: usize = 0;
const PORTS: usize = 2;
const BUS_MASTER: u16 = 1 << 2;
/// Offset of the subsystem in the configuration space; that of a card of Intel's, and that of one with a status block.
const SUBSYSTEM: u8 = 0x2e;
pub const PLAIN: u16 = 0x001e;
pub const WITH_BLOCK: u16 = 0x1101;
/// Time between two passes of the card's own thread, and lies that it writes at each.
const PASS: Duration = Duration::from_micros(500);
const SCRIBBLES: u32 = 32;
/// Passes without anything to send, after which the card wants to be told by the tail register.
const IDLE: u32 = 20;

/// A running NIC. Dropping it ends its threads.
pub struct Card {
    socket: PathBuf,
    device: Arc<Device>,
    passing: Option<JoinHandle<()>>,
    _server: Server,
}

impl Card {
    /// Serves a NIC with this subsystem at `socket`.
    pub fn start(socket: &Path, mac: [u8; 6], subsystem: u16) -> Card {
        let device = Arc::new(Device::new(mac, subsystem));
        let settings =
            ServerSettings { label: "lying".into(), socket: socket.to_owned(), access: SocketAccess::default() };
        let (function, interrupts) = (Arc::clone(&device) as Arc<dyn Function>, Arc::clone(&device.interrupts));
        let server = Server::start(&settings, function, interrupts, Arc::clone(&device) as Arc<dyn Observer>).unwrap();
        let passing = {
            let device = Arc::clone(&device);
            std::thread::spawn(move || {
                while !device.ended.load(Ordering::Relaxed) {
                    device.lock().pass(&device.interrupts);
                    std::thread::sleep(PASS);
                }
            })
        };
        Card { socket: socket.to_owned(), device, passing: Some(passing), _server: server }
    }

    pub fn nic(&self) -> Nic {
        Nic::vfio_user(&self.socket)
    }

    /// Tells this lie from now on, in place of any other.
    pub fn tell(&self, lie: Lie) {
        let mut state = self.device.lock();
        (state.lie, state.told) = (lie, 0);
        state.settle(&self.device.interrupts);
    }

    /// Tells the truth from now on, the link included: its state may be another one than was told last.
    pub fn be_honest(&self) {
        {
            let mut state = self.device.lock();
            state.raise(LSC);
            state.frames.forget();
        }
        self.tell(Lie::default());
    }

    /// How many times the present lie was told.
    pub fn told(&self) -> u64 {
        self.device.lock().told
    }

    /// Whether the driver uses the status block.
    pub fn uses_block(&self) -> bool {
        let state = self.device.lock();
        Shared::of(&state.chip, &state.memory).csb().is_some()
    }

    /// Offers no status block from now on, or one again.
    pub fn offer_block(&self, on: bool) {
        let mut state = self.device.lock();
        state.is_plain = !on;
        state.chip.set(CSBAL, 0);
    }

    /// How far the card is, for messages of tests.
    pub fn state(&self) -> String {
        let state = self.device.lock();
        let registers = [CTRL, RCTL, TCTL, RDH, RDT, TDH, TDT].map(|offset| format!("{:#x}", state.chip.get(offset)));
        let shared = Shared::of(&state.chip, &state.memory);
        let block: Vec<u32> = shared.block.iter().take(24).map(|word| word.load(Ordering::Relaxed)).collect();
        let (waiting, pin) = (state.frames.waiting.len(), state.chip.pin());
        format!("CTRL, RCTL, TCTL, RDH, RDT, TDH, TDT {registers:?}, {waiting} frames wait, pin {pin}, block {block:?}")
    }

    /// Faults of the connection, which the tests must not cause.
    pub fn faults(&self) -> Vec<String> {
        self.device.faults.lock().unwrap().clone()
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.device.ended.store(true, Ordering::Relaxed);
        if let Some(passing) = self.passing.take() {
            // A panic was reported when it happened.
            let _ = passing.join();
        }
    }
}

struct Device {
    state: Mutex<State>,
    interrupts: Arc<Interrupts>,
    quota: Arc<Quota>,
    faults: Mutex<Vec<String>>,
    ended: AtomicBool,
}

struct State {
    mac: [u8; 6],
    config: ConfigSpace,
    has_messages: bool,
    chip: Chip,
    memory: Dma,
    frames: Frames,
    lie: Lie,
    told: u64,
    /// True if the card does not offer its status block.
    is_plain: bool,
    /// Passes without anything to send.
    idle: u32,
}

impl Device {
    fn new(mac: [u8; 6], subsystem: u16) -> Device {
        let ids = PciIds {
            vendor: 0x8086,
            device: 0x100e,
            revision: 3,
            class: 0x02_0000,
            subsystem_vendor: 0x8086,
            subsystem,
        };
        let bars = [Bar::Memory(REGISTER_BYTES), Bar::None, Bar::Io(64)];
        let has_messages = subsystem == WITH_BLOCK;
        let capabilities = [Capability::power(0xdc), Capability::msi(0xf0, 0)];
        let state = State {
            mac,
            config: ConfigSpace::new(&ids, &bars, &capabilities[..1 + usize::from(has_messages)]),
            has_messages,
            chip: Chip::new(mac),
            memory: Dma::default(),
            frames: Frames::default(),
            lie: Lie::default(),
            told: 0,
            is_plain: false,
            idle: 0,
        };
        Device {
            state: Mutex::new(state),
            interrupts: Arc::default(),
            quota: Quota::of_port(Limits::PORT),
            faults: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Interrupts the guest if there is a cause, or if the lie is that there is one.
    fn settle(&mut self, interrupts: &Interrupts) {
        let by_message = interrupts.mode() == Mode::Msi;
        if self.config.has_pin_disabled() && !by_message {
            return;
        }
        match &mut self.lie.interrupting {
            Interrupting::Never => {}
            Interrupting::Storm(left @ 1..) => {
                if interrupts.trigger(0) {
                    *left -= 1;
                    self.told += 1;
                }
            }
            Interrupting::Honest | Interrupting::Storm(0) => {
                let is_due = if by_message { self.chip.take_message() } else { self.chip.pin() };
                if is_due {
                    interrupts.trigger(0);
                }
            }
        }
    }

    /// Raises interrupt causes. A driver with a status block is told to read those of no ring.
    fn raise(&mut self, causes: u32) {
        self.chip.raise(causes);
        if causes & LSC != 0 {
            Shared::of(&self.chip, &self.memory).csb().inspect(|csb| csb.has_causes());
        }
    }

    fn is_bus_master(&self) -> bool {
        self.config.command() & BUS_MASTER != 0
    }

    /// Moves frames in both directions.
    fn move_frames(&mut self) {
        if !self.is_bus_master() {
            return;
        }
        if !self.lie.is_deaf {
            rings::transmit(&mut self.chip, &self.memory, &mut self.frames);
        }
        let waiting = self.frames.waiting.len();
        rings::receive(&mut self.chip, &self.memory, &mut self.frames, self.lie.complete.as_deref_mut());
        if self.lie.complete.is_some() {
            self.told += (waiting - self.frames.waiting.len()) as u64;
        }
    }

    /// What the card does by itself: it watches the tails in the status block, and tells its lie.
    fn pass(&mut self, interrupts: &Interrupts) {
        for _ in self.frames.waiting.len()..self.lie.flood {
            self.frames.waiting.push_back(station::datagram(self.mac, 1400));
        }
        let sent = self.frames.sent;
        self.move_frames();
        self.idle = if self.frames.sent == sent { self.idle.saturating_add(1) } else { 0 };
        let memory = self.memory.clone();
        if let Some(csb) = Shared::of(&self.chip, &memory).csb() {
            if self.idle < IDLE {
                csb.decline();
            } else if self.idle == IDLE {
                csb.ask();
                self.move_frames();
            }
        }
        if let Some(scribble) = &mut self.lie.scribble {
            let shared = Shared::of(&self.chip, &memory);
            for _ in 0..SCRIBBLES {
                scribble(&shared);
                self.told += 1;
            }
        }
        self.raise(self.lie.causes);
        self.settle(interrupts);
    }

    fn read_register(&mut self, offset: u32) -> u32 {
        let honest = self.chip.read(offset);
        let Some(read) = &mut self.lie.read else { return honest };
        let value = read(offset, honest);
        self.told += u64::from(value != honest);
        value
    }

    fn write_register(&mut self, offset: u32, value: u32) {
        if offset == CSBAL && self.is_plain {
            return;
        }
        self.chip.write(offset, value);
        match offset {
            TDT | RDT => self.move_frames(),
            CSBAL => Shared::of(&self.chip, &self.memory).begin(&self.chip),
            CTRL if value & CTRL_RST != 0 => Shared::of(&self.chip, &self.memory).begin(&self.chip),
            _ => {}
        }
    }
}

impl Function for Device {
    fn quota(&self) -> Arc<Quota> {
        Arc::clone(&self.quota)
    }

    fn regions(&self) -> [RegionInfo; REGIONS] {
        let mut regions: [RegionInfo; REGIONS] = Default::default();
        for (region, size) in [(REGISTERS, REGISTER_BYTES.into()), (PORTS, 64), (CONFIG_REGION, 256)] {
            regions[region] = RegionInfo { size, access: true, ..RegionInfo::default() };
        }
        regions
    }

    fn irqs(&self) -> Irqs {
        Irqs { intx: 1, msi: self.lock().has_messages.into(), msi_x: 0 }
    }

    fn read(&self, region: usize, offset: u64, data: &mut [u8]) -> Result<(), BadAccess> {
        let mut state = self.lock();
        if region == CONFIG_REGION {
            let pin = state.chip.pin();
            state.config.set_interrupt(pin);
            state.config.read(offset, data)?;
            if state.is_plain {
                let plain = (u64::from(SUBSYSTEM)..).zip(PLAIN.to_le_bytes());
                plain.for_each(|(at, byte)| {
                    at.checked_sub(offset)
                        .and_then(|at| data.get_mut(at as usize))
                        .into_iter()
                        .for_each(|to| *to = byte);
                });
            }
            return Ok(());
        }
        let register = match state.chip.port(offset as u32) {
            Some(register) if region == PORTS => register,
            _ => offset as u32,
        };
        let value = state.read_register(register & !3).to_le_bytes();
        let from = offset as usize & 3;
        let part = value.get(from..from + data.len()).ok_or(BadAccess)?;
        data.copy_from_slice(part);
        Ok(())
    }

    fn write(&self, region: usize, offset: u64, data: &[u8]) -> Result<(), BadAccess> {
        let mut state = self.lock();
        if region == CONFIG_REGION {
            state.config.write(offset, data)?;
            // The guest may use the status block's memory for something else from now on.
            if !state.is_bus_master() {
                state.chip.set(CSBAL, 0);
            }
        } else {
            let value = u32::from_le_bytes(data.try_into().map_err(|_| BadAccess)?);
            match (region, state.chip.port(offset as u32)) {
                (PORTS, Some(register)) => state.write_register(register & !3, value),
                (PORTS, None) => state.chip.set_port(value),
                _ => state.write_register(offset as u32 & !3, value),
            }
        }
        state.settle(&self.interrupts);
        Ok(())
    }

    fn set_memory(&self, memory: Dma) {
        self.lock().memory = memory;
    }

    fn unmasked(&self) {
        self.lock().settle(&self.interrupts);
    }

    fn expects_register_read(&self) -> bool {
        self.lock().chip.pin()
    }

    fn reset(&self) {
        self.power_on();
    }

    fn connected(&self) -> std::io::Result<()> {
        self.power_on();
        Ok(())
    }

    fn disconnected(&self) {
        self.power_on();
    }
}

impl Device {
    fn power_on(&self) {
        let mut state = self.lock();
        state.chip = Chip::new(state.mac);
        state.frames.forget();
        state.config.reset();
    }
}

impl Observer for Device {
    fn connected(&self, _on: bool) {}

    fn fault(&self, reason: &'static str, detail: String) {
        self.faults.lock().unwrap().push(format!("{reason}: {detail}"));
    }

    fn refused(&self, reason: &'static str, detail: String) {
        self.fault(reason, detail);
    }
}
