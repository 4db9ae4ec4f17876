//! The device through its registers, as a front end accesses them for a guest, with rings in memory.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringway_memory::{Mapping, can_limit_holes};
use ringway_port::testing::Guest;
use ringway_switch::{Armed, BatchStorage, Bell, CallReason, CallResult, Input, Moderation, WakeOn};
use ringway_testing::file::allocated;
use ringway_testing::skip;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, fallocate};

use super::bell::E1000Bell;
use super::device::Device;
use super::input::E1000Input;
use super::offsets::*;
use super::{Model, Settings};
use crate::vfio_user::{BadAccess, CONFIG_REGION, Dma, Function, Mode, Observer};

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 9];
const PORTS: usize = 2;
/// MDIC: write to the PHY's control register.
const PHY_CONTROL: u32 = 1 << 26 | 1 << 21;
const LOOPBACK: u32 = 0x4140;
pub(super) const DESCRIPTORS: u32 = 128;
/// Size of the packet buffer in bytes: that of the real NIC.
pub(super) const RECEIVE_BUFFER: usize = 48 << 10;
/// PCI command register: I/O ports, memory, bus master.
pub(super) const ON: [u8; 2] = [7, 0];

#[derive(Default)]
struct Told(Mutex<Vec<&'static str>>);

impl Observer for Told {
    fn connected(&self, _: bool) {}

    fn fault(&self, reason: &'static str, detail: String) {
        panic!("{reason}: {detail}");
    }

    fn refused(&self, reason: &'static str, _: String) {
        self.0.lock().expect("no panics").push(reason);
    }
}

pub(super) fn settings(model: Model, mapped: bool) -> Settings {
    Settings {
        label: "nic".into(),
        socket: "nic".into(),
        access: ringway_port::SocketAccess::default(),
        model,
        mac: MAC,
        link: true,
        mapped,
        csb: true,
        completion_delay: Duration::ZERO,
        receive_buffer: RECEIVE_BUFFER,
        memory: ringway_memory::Limits::PORT,
    }
}

pub(super) struct Nic {
    pub(super) device: Arc<Device>,
    pub(super) input: E1000Input,
    told: Arc<Told>,
    pub(super) guest: Guest,
    pub(super) transmit: u64,
    pub(super) receive: u64,
}

impl Nic {
    pub(super) fn new(model: Model) -> Nic {
        Nic::with(model, false)
    }

    pub(super) fn with(model: Model, mapped: bool) -> Nic {
        let told = Arc::new(Told::default());
        let settings = settings(model, mapped);
        let device = Arc::new(Device::new(&settings, Arc::clone(&told) as Arc<dyn Observer>).expect("a device"));
        let (input, guest) = (E1000Input::new(Arc::clone(&device)), Guest::new());
        let (memory, bytes) = (Arc::clone(&guest.memory), DESCRIPTORS as usize * 16);
        device.connected().expect("memory");
        device.set_memory(Dma { readable: Arc::clone(&memory), writable: memory });
        device.write(CONFIG_REGION, 4, &ON).expect("the command register");
        let (transmit, receive) = (guest.alloc(bytes, 128), guest.alloc(bytes, 128));
        Nic { device, input, told, guest, transmit, receive }
    }

    /// The same NIC in another process, before it goes on. `settings`: of the port there.
    pub(super) fn successor(self, settings: &Settings) -> Result<Nic, Box<Nic>> {
        let (mut saved, file) = (Vec::new(), self.device.memory_file().expect("a descriptor"));
        self.device.save(&mut saved);
        let device = Device::new(settings, Arc::clone(&self.told) as Arc<dyn Observer>);
        let device = Arc::new(device.expect("a device"));
        if !device.restore(&saved, file) {
            return Err(Box::new(self));
        }
        let Nic { guest, transmit, receive, told, input, device: before } = self;
        // A process that is killed drops nothing.
        std::mem::forget((before, input));
        let memory = Arc::clone(&guest.memory);
        device.set_memory(Dma { readable: Arc::clone(&memory), writable: memory });
        Ok(Nic { input: E1000Input::new(Arc::clone(&device)), device, told, guest, transmit, receive })
    }

    pub(super) fn read(&self, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        self.device.read(0, offset.into(), &mut bytes).expect("a register");
        u32::from_le_bytes(bytes)
    }

    pub(super) fn write(&self, offset: u32, value: u32) {
        self.device.write(0, offset.into(), &value.to_le_bytes()).expect("a register");
    }

    /// Brings up the link and both rings, and gives the device all descriptors but one. Every frame passes the filters.
    pub(super) fn up(&self) {
        self.write(CTRL, CTRL_SLU);
        for (ring, low) in [(self.transmit, TDBAL), (self.receive, RDBAL)] {
            self.write(low, ring as u32);
            self.write(low + 4, (ring >> 32) as u32);
            self.write(low + 8, DESCRIPTORS * 16);
        }
        for place in 0..DESCRIPTORS {
            let buffer = self.guest.alloc(2048, 16);
            self.guest.write(self.receive + u64::from(place) * 16, &buffer.to_le_bytes());
        }
        self.write(RCTL, RCTL_EN | 1 << 3 | 1 << 4 | RCTL_SECRC);
        self.write(TCTL, TCTL_EN | TCTL_PSP);
        self.write(RDT, DESCRIPTORS - 1);
    }

    /// Puts frames into the transmit ring, from descriptor 0 on, and writes the tail.
    pub(super) fn send(&self, frames: u32) {
        self.put(self.transmit, frames);
        self.write(TDT, frames);
    }

    /// Puts frames into the ring at this address.
    pub(super) fn put(&self, ring: u64, frames: u32) {
        for place in 0..frames {
            let frame: Vec<u8> = (0..64u8).map(|byte| byte ^ place as u8).collect();
            let descriptor = u128::from(self.guest.place(&frame)) | u128::from(64 | 11u64 << 24) << 64;
            self.guest.write(ring + u64::from(place) * 16, &descriptor.to_le_bytes());
        }
    }

    /// Collects and releases as a poller does. Returns the number of sent frames.
    pub(super) fn pass(&mut self) -> usize {
        let mut batch = BatchStorage::new(256).into_batch();
        self.input.collect(&mut batch).expect("no fault of the port");
        let frames = batch.len();
        drop(batch);
        self.input.release();
        frames
    }

    pub(super) fn received(&self, place: u32) -> (Vec<u8>, bool) {
        let descriptor = self.guest.read(self.receive + u64::from(place) * 16, 16);
        let address = u64::from_le_bytes(descriptor[..8].try_into().expect("8 bytes"));
        (self.guest.read(address, 64), descriptor[12] & 1 != 0)
    }

    pub(super) fn told(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.told.0.lock().expect("no panics"))
    }
}

#[test]
fn registers_are_read_soon_from_an_interrupt_to_the_driver_s_last_flush() {
    let nic = Nic::new(Model::E1000);
    nic.up();
    let soon = || nic.device.expects_register_read();
    nic.read(STATUS);
    assert!(soon(), "all causes are masked: the driver polls");
    nic.write(IMS, TXDW);
    assert!(soon(), "a write that is not flushed");
    nic.read(STATUS);
    assert!(!soon());
    nic.send(1);
    nic.write(RDT, 0);
    assert!(!soon(), "no read follows the write of a tail");
    nic.write(ICS, TXDW);
    nic.read(STATUS);
    assert!(soon(), "the guest is interrupted");
    nic.read(ICR);
    assert!(!soon());
}

#[test]
fn a_held_interrupt_that_no_frame_brought_gets_into_a_poller_s_list_once() {
    let mut nic = Nic::new(Model::E1000);
    let bell = E1000Bell { device: Arc::clone(&nic.device) };
    let hour = Moderation::Fixed { interval: Duration::from_secs(3600), above: None };
    assert!(bell.moderate(hour));
    nic.write(IMS, LSC);
    nic.write(ICS, LSC);
    assert!(!nic.input.pending(), "the first is raised at once");
    nic.read(ICR);
    nic.device.arm();
    nic.write(ICS, LSC);
    assert!(nic.input.pending() && nic.input.take_event() && !nic.input.pending());
    let CallResult::Later { due, called: false } = bell.ring(CallReason::Room) else { panic!("the interrupt is held") };
    assert_eq!(bell.ring(CallReason::Frames), CallResult::Unwanted, "the device is already listed");
    nic.write(ICS, LSC);
    assert!(!nic.input.take_event(), "the device is already listed");
    // A scheduled call has come whose time is no longer right: an earlier call replaced it.
    assert_eq!(bell.ring_due(CallReason::Room, due + 1), CallResult::Unwanted);
    // The device's own call has come early: the device schedules it again.
    assert_eq!(bell.ring_due(CallReason::Room, due), CallResult::Later { due, called: false });
    // Moderation ends. The next check raises the interrupt, and the scheduled call finds nothing.
    bell.moderate(Moderation::default());
    assert_eq!(bell.ring_due(CallReason::Room, due), CallResult::Called);
    assert_eq!(bell.ring_due(CallReason::Room, due), CallResult::Unwanted);
}

#[test]
fn a_held_interrupt_gets_into_another_list_when_calls_are_forgotten() {
    let nic = Nic::new(Model::E1000);
    let bell = E1000Bell { device: Arc::clone(&nic.device) };
    bell.moderate(Moderation::Fixed { interval: Duration::from_secs(3600), above: None });
    nic.write(IMS, LSC);
    nic.write(ICS, LSC);
    nic.read(ICR);
    nic.write(ICS, LSC);
    let later = bell.ring(CallReason::Room);
    assert!(matches!(later, CallResult::Later { called: false, .. }));
    // The poller that has it in its list was relieved.
    bell.forget_calls();
    assert_eq!(bell.ring(CallReason::Room), later);
    assert_eq!(bell.ring(CallReason::Frames), CallResult::Unwanted);
}

#[test]
fn no_interrupt_of_the_pin_comes_after_the_guest_has_cleared_its_cause() {
    let nic = Nic::new(Model::E1000);
    nic.write(IMS, TXDW);
    let pin = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    nic.device.interrupts().set(Mode::Intx, 1, 0, std::iter::once(Some(pin.try_clone().unwrap().into())));
    let take = || rustix::io::read(&pin, &mut [0; 8]).is_ok();
    let (rounds, rung) = (AtomicU32::new(0), AtomicU32::new(0));
    const ROUNDS: u32 = 20_000;
    std::thread::scope(|scope| {
        // A poller.
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while rounds.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                nic.device.interrupting().causes.set(TXDW);
                nic.device.ring(None, true);
                rung.store(round, Ordering::Release);
            }
        });
        // The guest, which reads the causes by itself.
        let mut late = 0;
        for round in 1..=ROUNDS {
            nic.device.interrupts().mask(false);
            rounds.store(round, Ordering::Release);
            while nic.read(ICR) & TXDW == 0 {
                std::thread::yield_now();
            }
            take();
            while rung.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
            late += u32::from(take());
        }
        assert_eq!(late, 0, "interrupts after their causes were cleared");
    });
}

/// The register test of drivers: writes patterns, and checks which bits the mask keeps.
fn keeps(nic: &Nic, offset: u32, mask: u32, write: u32) {
    for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, !0] {
        nic.write(offset, pattern & write);
        assert_eq!(nic.read(offset), pattern & write & mask, "{offset:#x}");
    }
}

#[test]
fn the_register_test_of_either_driver_passes() {
    for model in [Model::E1000, Model::E1000e] {
        let nic = Nic::new(model);
        let status = nic.read(STATUS);
        nic.write(STATUS, !status);
        assert_eq!(nic.read(STATUS), status);
        for (offset, mask, write) in [
            (FCAL, !0, !0),
            (FCAH, 0xffff, !0),
            (FCT, 0xffff, !0),
            (VET, 0xffff, !0),
            (RDTR, 0xffff, !0),
            (RDBAH, !0, !0),
            (RDLEN, 0xf_ff80, 0xf_ffff),
            (RDH, 0xffff, 0xffff),
            (RDT, 0xffff, 0xffff),
            (FCRTH, 0xfff8, 0xfff8),
            (FCTTV, 0xffff, 0xffff),
            (TIPG, 0x3fff_ffff, 0x3fff_ffff),
            (TDBAH, !0, !0),
            (TDLEN, 0xf_ff80, 0xf_ffff),
        ] {
            keeps(&nic, offset, mask, write);
        }
        for (register, mask, write) in [(RCTL, !0, 0), (RCTL, 0x06df_b3fe, 0x003f_fffb), (TCTL, !0, 0)] {
            nic.write(register, write & mask);
            assert_eq!(nic.read(register) & mask, write & mask);
        }
        // Reception is on from here, with a ring outside guest memory.
        nic.write(RCTL, 0x06df_b3fe);
        keeps(&nic, RDBAL, !0xf, !0);
        keeps(&nic, TXCW, 0xc000_ffff, 0xffff);
        keeps(&nic, TDBAL, !0xf, !0);
        keeps(&nic, TIDV, 0xffff, 0xffff);
        (0..16).for_each(|entry| keeps(&nic, RA + 8 * entry + 4, 0x8003_ffff, !0));
        (MTA..MTA_END).step_by(4).for_each(|word| keeps(&nic, word, !0, !0));
        assert_eq!(nic.told(), [""; 0], "the ring was not used");
    }
}

#[test]
fn accesses_of_any_size_and_place_are_answered() {
    let nic = Nic::new(Model::E1000e);
    let mut bytes = [0; 8];
    nic.device.read(0, u64::from(RA), &mut bytes).expect("registers");
    assert_eq!(bytes[..6], MAC);
    nic.device.read(0, u64::from(RA) + 3, &mut bytes[..3]).expect("registers");
    assert_eq!(bytes[..3], MAC[3..]);
    nic.device.write(0, u64::from(MTA) + 2, &[1, 2, 3, 4]).expect("registers");
    assert_eq!([nic.read(MTA), nic.read(MTA + 4)], [0x0201_0000, 0x0403]);
    nic.device.write(0, u64::from(MTA), &[9]).expect("registers");
    assert_eq!(nic.read(MTA), 0x0201_0009, "the other bytes are unchanged");
    let mut all = vec![0xff; 0x2_0000];
    nic.device.read(0, 0, &mut all).expect("all registers");
    nic.device.write(0, 0, &all).expect("all registers");
    assert_eq!(nic.device.read(1, 0, &mut bytes), Err(BadAccess));
    assert_eq!(nic.device.read(CONFIG_REGION, 0, &mut bytes), Ok(()));
    assert_eq!(bytes[..4], [0x86, 0x80, 0xd3, 0x10]);
}

#[test]
fn registers_are_reached_through_the_ports_as_well() {
    let nic = Nic::new(Model::E1000);
    nic.write(VET, 0x8100);
    let port = |at: u64, value: u32| nic.device.write(PORTS, at, &value.to_le_bytes()).expect("a port");
    port(0, VET);
    let mut bytes = [0; 8];
    nic.device.read(PORTS, 0, &mut bytes).expect("ports");
    assert_eq!(bytes, [0x38, 0, 0, 0, 0, 0x81, 0, 0]);
    // Linux resets the NIC in this way.
    port(0, CTRL);
    port(4, CTRL_RST);
    assert_eq!(nic.read(VET), 0);
    port(0, 0xffff_fffe);
    port(4, !0);
    nic.device.read(PORTS, 4, &mut bytes[..4]).expect("a port");
    assert_eq!(bytes[..4], [0; 4], "there is no such register");
}

#[test]
fn a_reset_turns_the_rings_off_and_reads_the_address_again() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    nic.write(RA, 0);
    nic.write(IMS, LSC);
    nic.send(1);
    nic.write(CTRL, nic.read(CTRL) | CTRL_RST);
    assert_eq!((nic.pass(), nic.read(IMS), nic.read(TDT)), (0, 0, 0));
    assert_eq!([nic.read(RA), nic.read(RA + 4)], [0x0000_5452, 0x8000_0900]);
    nic.up();
    nic.send(1);
    assert_eq!(nic.pass(), 1);
}

#[test]
fn frames_wait_while_the_link_is_down_and_the_guest_is_told_of_both_changes() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    nic.read(ICR);
    nic.device.set_cable(false);
    assert_eq!((nic.read(STATUS) & STATUS_LU, nic.read(ICR)), (0, LSC));
    nic.send(2);
    assert_eq!((nic.pass(), nic.read(TDH)), (0, 0));
    nic.device.set_cable(true);
    assert_eq!((nic.read(STATUS) & STATUS_LU, nic.read(ICR)), (STATUS_LU, LSC));
    assert_eq!((nic.pass(), nic.read(TDH), nic.read(ICR)), (2, 2, TXDW | TXQE));
    assert_eq!(nic.read(ICR), 0);
}

#[test]
fn looped_frames_come_back_a_bounded_number_at_a_time_and_go_nowhere_else() {
    for (register, value) in [(MDIC, PHY_CONTROL | LOOPBACK), (RCTL, RCTL_EN | 3 << 3 | 1 << 6 | RCTL_SECRC)] {
        let mut nic = Nic::new(Model::E1000);
        nic.up();
        nic.write(register, value);
        nic.send(100);
        assert_eq!((nic.pass(), nic.read(TDH), nic.read(RDH)), (0, 64, 64));
        assert!(nic.input.take_event() && nic.input.pending());
        assert_eq!((nic.pass(), nic.read(TDH), nic.read(RDH)), (0, 100, 100));
        for place in 0..100 {
            let sent: Vec<u8> = (0..64u8).map(|byte| byte ^ place as u8).collect();
            assert_eq!(nic.received(place), (sent, true), "frame {place}");
        }
        assert!(!nic.received(100).1);
        assert_ne!(nic.read(ICR) & RXT0, 0);
        // GPTC and GPRC.
        assert_eq!((nic.read(0x4080), nic.read(0x4074), nic.read(0x4080)), (100, 100, 0));
    }
}

#[test]
fn loopback_storms_end_with_the_descriptors() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    nic.write(MDIC, PHY_CONTROL | LOOPBACK);
    for turn in 0..4 {
        nic.write(TDH, 0);
        nic.send(DESCRIPTORS - 1);
        for _ in 0..2 {
            nic.pass();
        }
        assert_eq!(nic.read(TDH), DESCRIPTORS - 1);
        assert_eq!(nic.read(RDH), DESCRIPTORS - 1, "turn {turn}: no descriptor is used twice");
    }
    assert_eq!(nic.device.input.lock().sent.frames, 508);
    // RNBC: frames for which there was no descriptor.
    assert_eq!(nic.read(0x40a0), 508 - 127);
}

#[test]
fn a_broken_ring_is_named_once_rests_and_works_again_when_it_is_turned_on_anew() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    nic.send(1);
    nic.write(TDT, DESCRIPTORS);
    for _ in 0..10 {
        nic.pass();
        nic.write(TDT, DESCRIPTORS + 1);
    }
    assert_eq!(nic.told(), ["ring_tail_out_of_range"]);
    assert!(!nic.input.pending());
    nic.write(TDT, 1);
    nic.write(TCTL, 0);
    nic.write(TCTL, TCTL_EN);
    assert_eq!(nic.pass(), 1);
    // Many times in a loop: faults do not fill the log. One is told each second.
    let began = Instant::now();
    for _ in 0..1_000 {
        nic.write(TCTL, 0);
        nic.write(TDT, !0);
        nic.write(TCTL, TCTL_EN);
        nic.pass();
    }
    let told = nic.told().len() as u64;
    assert!(told <= 1 + began.elapsed().as_secs(), "{told}");
}

#[test]
fn a_driver_with_a_status_block_writes_no_tails_and_is_told_what_it_asked_for() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    let block = nic.guest.alloc(4096, 4096);
    let get = |nic: &Nic, at: u64| u32::from_le_bytes(nic.guest.read(block + at, 4).try_into().expect("4 bytes"));
    let put = |nic: &Nic, at: u64, value: u32| nic.guest.write(block + at, &value.to_le_bytes());
    nic.write(CSBAH, (block >> 32) as u32);
    nic.write(CSBAL, block as u32);
    assert_eq!(get(&nic, 68), 0, "the poller is awake and needs no wakeup");
    nic.send(7);
    nic.write(TDT, 0);
    // Until the driver turns the block on, the tail register counts.
    put(&nic, 0, 3);
    assert_eq!(nic.pass(), 0);
    put(&nic, 12, 1);
    nic.input.disarm();
    assert_eq!((nic.pass(), get(&nic, 64), get(&nic, 68), nic.read(ICR) & TXDW), (3, 3, 0, 0));
    put(&nic, 0, 5);
    put(&nic, 4, 1);
    assert!(nic.input.arm(WakeOn::Frames) == Armed::Pending, "two frames wait already");
    assert_eq!(get(&nic, 68), 1);
    assert_eq!((nic.pass(), get(&nic, 64), nic.read(ICR) & TXDW), (2, 5, TXDW));
    // Received frames (here looped-back ones) are reported in the same way.
    nic.write(MDIC, PHY_CONTROL | LOOPBACK);
    put(&nic, 16, DESCRIPTORS - 1);
    nic.write(RDT, 0);
    put(&nic, 0, 6);
    assert_eq!((nic.pass(), get(&nic, 80), nic.read(ICR) & RXT0), (0, 1, 0));
    put(&nic, 8, 1);
    put(&nic, 0, 7);
    assert_eq!((nic.pass(), get(&nic, 80), nic.read(ICR) & RXT0), (0, 2, RXT0));
}

#[test]
fn a_message_ends_its_causes_by_itself_and_the_block_tells_of_others() {
    let mut nic = Nic::new(Model::E1000);
    let call = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    let calls = || {
        let mut bytes = [0; 8];
        rustix::io::read(&call, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    };
    nic.up();
    let block = nic.guest.alloc(4096, 4096);
    let get = |nic: &Nic, at: u64| u32::from_le_bytes(nic.guest.read(block + at, 4).try_into().expect("4 bytes"));
    let put = |nic: &Nic, at: u64, value: u32| nic.guest.write(block + at, &value.to_le_bytes());
    nic.device.interrupts().set(Mode::Msi, 1, 0, [Some(call.try_clone().expect("a descriptor").into())].into_iter());
    put(&nic, 12, 1);
    put(&nic, 4, 1);
    nic.write(CSBAL, block as u32);
    nic.write(EIAC, TXDW | TXQE | RXDMT0 | RXO | RXT0);
    nic.read(ICR);
    nic.write(IMS, TXDW | LSC);
    calls();
    nic.send(3);
    for tail in 1..4 {
        put(&nic, 0, tail);
        assert_eq!((nic.pass(), nic.device.settle(), calls(), get(&nic, 88)), (1, (), 1, 0), "{tail}");
    }
    nic.device.set_cable(false);
    assert_eq!((calls(), get(&nic, 88)), (1, 1));
    put(&nic, 88, 0);
    assert_eq!((nic.read(ICR) & (TXDW | LSC), calls()), (LSC, 0));
}

#[test]
fn a_guest_is_not_asked_for_tail_writes_while_the_poller_works_though_another_thread_had_the_lock() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    let block = nic.guest.alloc(4096, 4096);
    let get = |nic: &Nic, at: u64| u32::from_le_bytes(nic.guest.read(block + at, 4).try_into().expect("4 bytes"));
    nic.guest.write(block + 12, &1u32.to_le_bytes());
    nic.write(CSBAL, block as u32);
    assert!(nic.input.arm(WakeOn::Frames) == Armed::Kick);
    assert_eq!(get(&nic, 68), 1);
    let device = Arc::clone(&nic.device);
    let guard = device.input.lock();
    nic.input.disarm();
    drop(guard);
    assert_eq!(get(&nic, 68), 1);
    nic.pass();
    assert_eq!(get(&nic, 68), 0);
}

#[test]
fn a_sleeping_poller_looks_for_frequent_frames_and_asks_for_tail_writes_when_it_finds_none() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    let block = nic.guest.alloc(4096, 4096);
    let asks = |nic: &Nic| nic.guest.read(block + 68, 4)[0];
    nic.guest.write(block + 12, &1u32.to_le_bytes());
    nic.write(CSBAL, block as u32);
    nic.put(nic.transmit, DESCRIPTORS);
    assert!(nic.input.arm(WakeOn::Frames) == Armed::Kick, "nothing has come yet");
    // On a busy machine some windows have too few frames.
    let mut count = 0;
    let mut tail = 0;
    ringway_testing::until("the poller looks by itself", || {
        // As fast as frames can come.
        for _ in 0..1000 {
            if nic.input.arm(WakeOn::Frames) == Armed::Silent {
                return true;
            }
            assert_eq!(asks(&nic), 1);
            nic.input.disarm();
            count += 1;
            tail = count % DESCRIPTORS;
            nic.guest.write(block, &tail.to_le_bytes());
            assert_eq!(nic.pass(), 1);
        }
        false
    });
    assert_eq!(asks(&nic), 0);
    nic.guest.write(block, &((tail + 1) % DESCRIPTORS).to_le_bytes());
    assert!(nic.input.pending(), "a look finds a frame");
    assert_eq!((asks(&nic), nic.pass()), (0, 1));
    assert!(!nic.input.pending());
    assert_eq!(asks(&nic), 1);
    nic.input.disarm();
    assert!(nic.input.arm(WakeOn::Frames) == Armed::Kick);
}

#[test]
fn a_status_block_that_cannot_be_is_refused_by_name() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    nic.write(CSBAL, 0x7f00_0000);
    assert_eq!(nic.told(), ["csb_bad_address"]);
    nic.send(1);
    assert_eq!(nic.pass(), 1, "the tail register works again");
    let nic = Nic::new(Model::E1000);
    nic.up();
    nic.write(CSBAL, nic.transmit as u32);
    assert_eq!(nic.told(), ["csb_overlaps_ring"]);
}

#[test]
fn memory_that_goes_away_breaks_the_ring_and_nothing_else() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    nic.send(3);
    nic.device.set_memory(Dma::default());
    assert_eq!(nic.pass(), 0);
    assert_eq!(nic.told(), ["ring_bad_base"]);
    let memory = Arc::clone(&nic.guest.memory);
    nic.device.set_memory(Dma { readable: Arc::clone(&memory), writable: memory });
    nic.write(TCTL, 0);
    nic.write(TCTL, TCTL_EN);
    assert_eq!(nic.pass(), 3);
}

#[test]
fn a_front_end_that_goes_leaves_a_device_as_after_power_on() {
    let mut nic = Nic::new(Model::E1000e);
    nic.up();
    nic.write(MTA, 1);
    nic.write(MDIC, PHY_CONTROL | LOOPBACK);
    nic.device.disconnected();
    assert_eq!((nic.pass(), nic.read(MTA), nic.read(RCTL), nic.read(TDLEN)), (0, 0, 0, 0));
    let mut command = [0; 2];
    nic.device.read(CONFIG_REGION, 4, &mut command).expect("the command register");
    assert_eq!(command, [0, 0]);
}

#[test]
fn nothing_of_a_guest_is_there_for_the_next() {
    for model in [Model::E1000, Model::E1000e] {
        let mut nic = Nic::new(model);
        nic.up();
        nic.send(3);
        nic.pass();
        nic.write(MDIC, PHY_CONTROL | LOOPBACK);
        nic.write(TDT, 5);
        nic.pass();
        nic.write(IMS, LSC);
        nic.write(ICS, LSC);
        // The address in the EEPROM, written by register or bit by bit.
        nic.write(EEWR, 0xffff_0001);
        let bits = |nic: &Nic, bits: &str| {
            nic.write(EECD, 2);
            for (bit, clock) in bits.bytes().flat_map(|bit| [(bit, 0), (bit, 1)]) {
                nic.write(EECD, 2 | u32::from(bit == b'1') << 2 | clock);
            }
            nic.write(EECD, 0);
        };
        bits(&nic, "100110000");
        bits(&nic, &["101000000", &"1".repeat(16)].concat());
        nic.write(CTRL, CTRL_RST);
        assert_eq!(nic.read(RA) & 0xffff, 0xffff, "the address stays without power");
        nic.device.disconnected();
        nic.device.connected().expect("memory");
        assert_eq!([nic.read(RA), nic.read(RA + 4)], [0x0000_5452, 0x8000_0900]);
        for register in (STATISTICS..STATISTICS_END).step_by(4) {
            assert_eq!(nic.read(register), 0, "{register:#x}");
        }
    }
}

#[test]
fn the_ring_registers_of_a_former_front_end_are_not_those_of_the_next() {
    for model in [Model::E1000, Model::E1000e] {
        let mut nic = Nic::with(model, true);
        let file = nic.device.chip.lock().page.file().expect("a descriptor");
        let former = Mapping::shared(file.as_fd(), RING_PAGES_END as usize).expect("memory");
        let at = |offset: u32| &former.view(offset as usize, 4).and_then(|view| view.words32()).expect("a word")[0];
        nic.up();
        assert_eq!(at(TDLEN).load(Ordering::SeqCst), DESCRIPTORS * 16, "the first front end sees its registers");
        nic.device.disconnected();
        // A guest that has gone can write its registers as long as it likes: before the next one comes, and afterwards.
        for register in (RING_PAGES..RING_PAGES_END).step_by(4) {
            at(register).store(u32::MAX, Ordering::SeqCst);
        }
        nic.device.connected().expect("memory");
        let new = Nic::with(model, true);
        for register in (RING_PAGES..RING_PAGES_END).step_by(4) {
            assert_eq!(nic.read(register), new.read(register), "{register:#x} is that of a device without power");
        }
        let memory = Arc::clone(&nic.guest.memory);
        nic.device.set_memory(Dma { readable: Arc::clone(&memory), writable: memory });
        nic.device.write(CONFIG_REGION, 4, &ON).expect("the command register");
        nic.up();
        nic.put(nic.transmit, 5);
        for (register, value) in [(TDT, 5), (RDBAL, 0), (RDLEN, 128), (RDT, 1)] {
            at(register).store(value, Ordering::SeqCst);
        }
        assert_eq!(nic.pass(), 0, "the former guest does not send for this one");
        nic.write(TDT, 2);
        assert_eq!((nic.pass(), nic.read(TDH)), (2, 2));
        assert_eq!((nic.read(RDLEN), nic.read(RDT)), (DESCRIPTORS * 16, DESCRIPTORS - 1));
        assert_eq!(at(TDT).load(Ordering::SeqCst), 5, "and sees none of its registers");
        assert_eq!(at(TDH).load(Ordering::SeqCst), u32::MAX);
        assert_eq!(nic.told(), [""; 0]);
    }
}

#[test]
fn a_front_end_that_takes_pages_of_the_ring_registers_out_loses_them_and_costs_no_further_faults() {
    if !can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    let mut nic = Nic::with(Model::E1000e, true);
    nic.up();
    nic.send(3);
    assert_eq!(nic.pass(), 3);
    let file = nic.device.chip.lock().page.file().expect("a descriptor");
    let (all, taken) = (u64::from(RING_PAGES_END), u64::from(RING_PAGES_END - RING_PAGES));
    assert_eq!(allocated(&file), all);
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for _ in 0..3 {
        fallocate(&file, how, RING_PAGES.into(), taken).expect("a hole");
        assert!((0..100).all(|_| !nic.input.pending() || nic.pass() == 0));
        nic.device.drain();
        assert_eq!(allocated(&file), all - taken, "no page is made again");
    }
    // Once or twice: reports of one second are one.
    let told = nic.told();
    assert!(!told.is_empty() && told.iter().all(|name| *name == "memory_lost"), "{told:?}");
    // The next connection has registers again.
    nic.device.disconnected();
    nic.device.connected().expect("memory");
    let memory = Arc::clone(&nic.guest.memory);
    nic.device.set_memory(Dma { readable: Arc::clone(&memory), writable: memory });
    nic.device.write(CONFIG_REGION, 4, &ON).expect("the command register");
    nic.up();
    nic.send(2);
    assert_eq!((nic.pass(), nic.told()), (2, vec![]));
}

#[test]
fn without_bus_mastering_no_memory_is_touched() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    let block = nic.guest.alloc(4096, 4096);
    nic.write(CSBAH, (block >> 32) as u32);
    nic.write(CSBAL, block as u32);
    nic.device.write(CONFIG_REGION, 4, &[3]).expect("the command register");
    nic.guest.write(block, &[0x55; 128]);
    nic.send(2);
    nic.pass();
    assert!(nic.input.arm(WakeOn::Frames) != Armed::Pending);
    nic.input.disarm();
    assert_eq!((nic.read(TDH), nic.guest.read(block, 128)), (0, vec![0x55; 128]));
    assert!(!nic.device.output.lock().link, "a device without power receives nothing");
    nic.device.write(CONFIG_REGION, 4, &ON).expect("the command register");
    assert_eq!((nic.pass(), nic.read(TDH)), (2, 2));
    assert_eq!(nic.told(), [""; 0]);
}
