//! A guest and a front end driven by a fuzzer: accesses of every size and place, descriptors and registers rewritten at any
//! time, a front end that takes memory away, while a poller works on the rings.

mod seeds;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ringway_memory::View;
use ringway_port::guest::{GuestMemory, Region};
use ringway_switch::{Armed, Batch, BatchStorage, Bell, CallReason, Discarded, Input, WakeOn};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::bell::E1000Bell;
use super::device::Device;
use super::input::E1000Input;
use super::offsets::*;
use super::{Model, Settings};
use crate::vfio_user::{CONFIG_REGION, Dma, Function, Mode, Observer};
pub use seeds::seeds;

const AT: u64 = 0x1_0000;
const BYTES: u64 = 0x1_0000;
const STEPS: usize = 400;
/// Bytes of the longest frame delivered to the guest.
const MOST_FRAME: usize = 255 * 8 + 14;
/// Registers with an effect.
const LIVELY: [u32; 40] = [
    CTRL, CTRL_EXT, EECD, EERD, MDIC, VET, ICR, ITR, ICS, IMS, IMC, EIAC, IAM, IVAR, EITR, RCTL, TCTL, PBA, EEWR,
    PSRCTL, RDBAL, RDBAH, RDLEN, RDH, RDT, RDTR, RADV, CSBAL, CSBAH, TDBAL, TDBAH, TDLEN, TDH, TDT, TIDV, TADV, RXCSUM,
    RFCTL, SWSM, STATISTICS,
];

/// State that outlives a case, because it is expensive to make: guest memory, and memory for frames.
struct Bench {
    memory: Arc<GuestMemory>,
    taken: Option<BatchStorage>,
    given: Option<BatchStorage>,
}

impl Bench {
    fn new() -> Bench {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, BYTES).expect("memory");
        let region = Region::map(&file, AT, BYTES, AT, 0).expect("a region");
        let memory = Arc::new(GuestMemory::new(vec![Arc::new(region)]));
        Bench { memory, taken: Some(BatchStorage::new(64)), given: Some(BatchStorage::new(8)) }
    }

    fn dma(&self) -> Dma {
        Dma { readable: Arc::clone(&self.memory), writable: Arc::clone(&self.memory) }
    }
}

struct Nobody;

impl Observer for Nobody {
    fn connected(&self, _: bool) {}

    fn fault(&self, reason: &'static str, detail: String) {
        panic!("a guest cost its front end the connection: {reason}: {detail}");
    }
}

/// The bytes of the input, then zeroes.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, others)) = self.0.split_first() else { return 0 };
        self.0 = others;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([0; 4].map(|_: u8| self.next()))
    }

    /// Returns a number that is likely to have a meaning in some register.
    fn number(&mut self) -> u32 {
        let (kind, small) = (self.next(), u32::from(self.next()));
        match kind % 8 {
            0 => small,
            1 => AT as u32 + (small << 8),
            2 => small << 7,
            3 => 1 << (small % 32),
            4 => !(1 << (small % 32)),
            5 => u32::MAX - small,
            // What drivers enable: rings, padding, link, all frames, loopback.
            6 => [RCTL_EN | 0x8018, TCTL_EN | TCTL_PSP, CTRL_SLU, RCTL_EN | 0x8058, 1 << 26 | 1 << 21 | 0x4140]
                [small as usize % 5],
            _ => self.word(),
        }
    }

    fn register(&mut self) -> u32 {
        let place = self.next();
        match LIVELY.get(usize::from(place)) {
            Some(offset) => *offset,
            None => self.word() % 0x2_0000,
        }
    }
}

fn device(kind: u8) -> Arc<Device> {
    let settings = Settings {
        label: "nic".into(),
        socket: "nic".into(),
        access: ringway_port::SocketAccess::default(),
        model: if kind & 1 == 0 { Model::E1000 } else { Model::E1000e },
        mac: [2, 0, 0, 0, 0, 1],
        link: kind & 2 == 0,
        mapped: kind & 4 == 0,
        csb: kind & 8 == 0,
        completion_delay: Duration::from_millis(u64::from(kind >> 4)),
        receive_buffer: 16 << 10,
        memory: ringway_memory::Limits::PORT,
    };
    Arc::new(Device::new(&settings, Arc::new(Nobody)).expect("a device"))
}

/// Returns all registers of a device without a front end.
fn registers(device: &Device) -> Vec<u8> {
    device.disconnected();
    let mut bytes = vec![0; 0x6000];
    device.read(0, 0, &mut bytes).expect("registers");
    bytes
}

/// Delivers frames to the guest.
fn deliver(bench: &mut Bench, device: &Device, bytes: &mut Bytes<'_>) {
    let mut frame = [bytes.next(); MOST_FRAME];
    let (len, count) = (usize::from(bytes.next()) * 8 + 14, bytes.next() % 8 + 1);
    let Some(storage) = bench.given.take() else { return };
    let mut batch: Batch<'_> = storage.into_batch();
    let view = View::private(&mut frame[..len]);
    (0..count).for_each(|_| batch.push(view, len));
    device.give_back(&batch);
    bench.given = Some(batch.into_storage());
}

/// Runs a guest with one NIC until the input is used up.
pub fn guest(data: &[u8]) {
    thread_local!(static BENCH: RefCell<Bench> = RefCell::new(Bench::new()));
    BENCH.with_borrow_mut(|bench| guest_at(bench, data));
}

fn guest_at(bench: &mut Bench, data: &[u8]) {
    let mut bytes = Bytes(data);
    let kind = bytes.next();
    let device = device(kind);
    let (mut input, bell) = (E1000Input::new(Arc::clone(&device)), E1000Bell { device: Arc::clone(&device) });
    assert!(bench.memory.view(AT, BYTES as usize).expect("in it").write(&[0; BYTES as usize]));
    device.connected().expect("memory");
    device.set_memory(bench.dma());
    // What hypervisor and operating system do before a driver starts.
    let mode = [Mode::Intx, Mode::Msi, Mode::MsiX, Mode::None][usize::from(kind >> 4 & 3)];
    device.interrupts().set(mode, 5, 0, std::iter::repeat_with(|| None).take(5));
    device.write(CONFIG_REGION, 4, &[7, 0]).expect("in it");
    for _ in 0..STEPS {
        if bytes.0.is_empty() {
            break;
        }
        let mut data = [0; 16];
        match bytes.next() % 16 {
            0..=3 => {
                let (offset, value) = (bytes.register(), bytes.number());
                device
                    .write(0, offset.into(), &value.to_le_bytes()[..(0x2_0000 - offset).min(4) as usize])
                    .expect("in it");
            }
            4 => {
                let (offset, len) = (bytes.word() % 0x1_fff0, usize::from(bytes.next() % 17));
                device.read(0, offset.into(), &mut data[..len]).expect("in it");
            }
            5 => {
                let (offset, len) = (bytes.register().min(0x1_fff0), usize::from(bytes.next() % 17));
                data = data.map(|_| bytes.next());
                device.write(0, offset.into(), &data[..len]).expect("in it");
            }
            6 => {
                let at = bytes.next() % 9;
                device.write(2, at.into(), &bytes.number().to_le_bytes()).expect("in it");
                device.read(2, at.into(), &mut data[..4]).expect("in it");
            }
            7 => {
                let at = u64::from(bytes.next()).min(252);
                device.write(7, at, &bytes.number().to_le_bytes()).expect("in it");
            }
            8 => {
                let Some(storage) = bench.taken.take() else { return };
                let mut batch = storage.into_batch();
                input.collect(&mut batch).expect("a guest cannot end its port");
                bench.taken = Some(batch.into_storage());
                input.release();
            }
            9 => {
                let mut discarded = Discarded::default();
                discarded.frames += input.discard(32).expect("a guest cannot end its port").frames;
                assert!(discarded.frames <= 32);
            }
            10 => deliver(bench, &device, &mut bytes),
            11 => match bytes.next() % 8 {
                0 => device.set_cable(false),
                1 => device.set_cable(true),
                2 => device.unmasked(),
                3 => device.reset(),
                4 => device.set_memory(Dma::default()),
                _ => device.set_memory(bench.dma()),
            },
            12 | 13 => {
                let at = AT + u64::from(bytes.next()) * 16;
                let descriptor =
                    [bytes.number(), bytes.next().into(), bytes.number(), bytes.number()].map(u32::to_le_bytes);
                assert!(bench.memory.view(at, 16).expect("in it").write(descriptor.as_flattened()));
            }
            14 => device.chip.lock().page.set(0x2000 + bytes.word() % 0x2000 / 4 * 4, bytes.number()),
            _ => {
                bell.ring(CallReason::Room);
                if input.arm(WakeOn::Frames) != Armed::Pending {
                    input.disarm();
                }
            }
        }
    }
    device.set_cable(kind & 2 == 0);
    // Comparing all registers takes longer than the rest, so only each eighth case does so, chosen by its bytes.
    if data.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte)) < 32 {
        let (after, new) = (registers(&device), registers(&super::fuzzing::device(kind)));
        if after != new {
            let outlasts = after.iter().zip(&new).position(|(after, new)| after != new);
            panic!("the register at {outlasts:#x?} outlasts its front end");
        }
    }
}
