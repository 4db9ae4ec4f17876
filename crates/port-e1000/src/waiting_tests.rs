//! Frames wait if they come while the guest has given no descriptors.

use std::sync::Arc;

use ringway_runtime::nanoseconds;
use ringway_switch::{Armed, BatchStorage, Bell, CallReason, CallResult, Input, WakeOn};

use super::Model;
use super::bell::E1000Bell;
use super::device_tests::{DESCRIPTORS, Nic, ON, RECEIVE_BUFFER};
use super::offsets::*;
use crate::vfio_user::{CONFIG_REGION, Function};

const MPC: u32 = 0x4010;
const GPRC: u32 = 0x4074;
const RNBC: u32 = 0x40a0;
/// Frames of 64 bytes that fill a packet buffer.
const HELD: u32 = RECEIVE_BUFFER as u32 / 64;

fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[20..24].copy_from_slice(&number.to_le_bytes());
    frame
}

/// Numbers the frames that are sent to a NIC.
struct Link<'n> {
    nic: &'n mut Nic,
    bell: E1000Bell,
    sent: u32,
    /// Descriptors whose frames the driver has taken.
    seen: u32,
}

impl Link<'_> {
    fn of(nic: &mut Nic) -> Link<'_> {
        nic.up();
        let bell = E1000Bell { device: Arc::clone(&nic.device) };
        Link { nic, bell, sent: 0, seen: 0 }
    }

    fn send(&mut self, count: u32) {
        for number in self.sent..self.sent + count {
            let mut bytes = frame(number);
            let mut batch = BatchStorage::new(1).into_batch();
            batch.push(ringway_memory::View::private(&mut bytes), 64);
            self.nic.device.give_back(&batch);
        }
        self.sent += count;
    }

    /// Takes the frames that the driver finds, and frees their descriptors. Returns the numbers of the frames.
    fn take(&mut self) -> Vec<u32> {
        let mut came = Vec::new();
        while self.nic.received(self.seen % DESCRIPTORS).1 {
            let place = self.seen % DESCRIPTORS;
            let bytes = self.nic.received(place).0;
            came.push(u32::from_le_bytes(bytes[20..24].try_into().expect("4 bytes")));
            self.nic.guest.write(self.nic.receive + u64::from(place) * 16 + 8, &[0; 8]);
            self.seen += 1;
        }
        came
    }

    /// Returns the tail that gives back all descriptors whose frames were taken.
    fn tail(&self) -> u32 {
        (self.seen + DESCRIPTORS - 1) % DESCRIPTORS
    }
}

#[test]
fn frames_without_descriptors_wait_and_are_not_overtaken() {
    for model in [Model::E1000, Model::E1000e] {
        let mut nic = Nic::new(model);
        let mut link = Link::of(&mut nic);
        link.send(300);
        let mut came = link.take();
        assert_eq!(came.len(), 127);
        link.nic.read(ICR);
        // The poller sleeps, and the write of the tail wakes it.
        link.nic.device.take_event();
        assert!(link.nic.input.arm(WakeOn::Frames) != Armed::Pending);
        link.nic.write(RDT, link.tail());
        assert!(link.nic.input.pending() && link.nic.input.take_event());
        assert!(link.take().is_empty(), "a register access moves no frame");
        link.bell.ring(CallReason::Room);
        came.extend(link.take());
        assert_eq!(came.len(), 254);
        assert_ne!(link.nic.read(ICR) & RXT0, 0, "the guest is interrupted");
        // Waiting frames are delivered before the new one, although there are descriptors for it, too.
        link.nic.write(RDT, link.tail());
        link.send(1);
        came.extend(link.take());
        assert_eq!(came, (0..301).collect::<Vec<_>>());
        link.nic.device.take_event();
        link.nic.write(RDT, link.tail());
        assert!(!link.nic.input.pending(), "no frame waits");
        assert_eq!([MPC, GPRC, RNBC].map(|counter| link.nic.read(counter)), [0, 301, 173]);
    }
}

#[test]
fn a_poller_that_has_the_guests_frames_wait_is_woken_for_its_descriptors_and_not_for_frames() {
    let mut nic = Nic::new(Model::E1000);
    let mut link = Link::of(&mut nic);
    link.send(300);
    assert_eq!(link.take().len(), 127);
    link.nic.device.take_event();
    let wake = link.nic.device.signal().expect("a descriptor");
    let is_woken = || rustix::io::read(&wake, &mut [0; 8]).is_ok();
    is_woken();
    assert!(link.nic.input.arm(WakeOn::Events) == Armed::Kick);
    link.nic.write(TDT, 1);
    assert!(!is_woken(), "frames do not wake the poller");
    link.nic.write(RDT, link.tail());
    assert!(is_woken());
    assert!(link.nic.input.arm(WakeOn::Events) == Armed::Pending, "the event stays until the poller takes it");
    assert!(link.nic.input.take_event() && link.nic.input.arm(WakeOn::Events) == Armed::Kick);
    link.nic.input.disarm();
    link.nic.write(RDT, link.tail());
    assert!(!is_woken() && link.nic.input.take_event(), "an awake poller needs no wakeup");
}

#[test]
fn what_a_full_packet_buffer_has_no_room_for_is_lost_and_counted() {
    let mut nic = Nic::new(Model::E1000);
    let mut link = Link::of(&mut nic);
    link.send(127 + HELD);
    assert_eq!(link.nic.read(ICR) & RXO, 0, "nothing is lost");
    link.send(3);
    assert_ne!(link.nic.read(ICR) & RXO, 0);
    assert_eq!([MPC, RNBC].map(|counter| link.nic.read(counter)), [3, HELD + 3]);
    let mut came = 0;
    while came < 127 + HELD {
        let now = link.take();
        assert_eq!(now, (came..came + now.len() as u32).collect::<Vec<_>>());
        assert!(!now.is_empty(), "after {came} frames");
        came += now.len() as u32;
        link.nic.write(RDT, link.tail());
        link.bell.ring(CallReason::Room);
    }
    assert!(link.take().is_empty());
}

#[test]
fn frames_that_wait_are_forgotten_with_what_they_waited_for() {
    type Change = fn(&Nic);
    let changes: [(&str, Change); 6] = [
        ("receiving is turned off", |nic| nic.write(RCTL, 0)),
        ("the NIC is reset", |nic| nic.write(CTRL, CTRL_RST)),
        ("the cable is pulled", |nic| nic.device.set_cable(false)),
        ("bus mastering is turned off", |nic| {
            nic.device.write(CONFIG_REGION, 4, &[3, 0]).expect("the command register");
        }),
        ("the ring is moved", |nic| nic.write(RDH, 0)),
        ("another guest connects", |nic| {
            nic.device.disconnected();
            nic.device.connected().expect("memory");
        }),
    ];
    for (what, change) in changes {
        let mut nic = Nic::new(Model::E1000);
        let mut link = Link::of(&mut nic);
        link.send(200);
        assert_eq!(link.take().len(), 127);
        change(link.nic);
        assert!(link.nic.device.output.lock().buffer.is_empty(), "{what}");
        link.nic.device.set_cable(true);
        link.nic.device.write(CONFIG_REGION, 4, &ON).expect("the command register");
        link.nic.write(RCTL, 0);
        link.nic.write(RDH, 0);
        link.nic.write(RDT, 0);
        link.seen = 0;
        link.nic.up();
        link.bell.ring(CallReason::Room);
        assert!(link.take().is_empty(), "{what}");
        link.send(1);
        assert_eq!(link.take(), [200], "{what}");
    }
}

#[test]
fn frames_that_come_before_the_first_descriptor_wait_for_it() {
    let mut nic = Nic::new(Model::E1000);
    let mut link = Link::of(&mut nic);
    link.nic.write(RCTL, 0);
    link.nic.write(RDH, 0);
    link.nic.write(RDT, 0);
    link.nic.write(RCTL, RCTL_EN | 1 << 3 | 1 << 4 | RCTL_SECRC);
    link.send(5);
    assert!(link.take().is_empty());
    link.nic.write(RDT, DESCRIPTORS - 1);
    link.bell.ring(CallReason::Room);
    assert_eq!(link.take(), [0, 1, 2, 3, 4]);
}

#[test]
fn descriptors_that_are_given_without_a_message_are_looked_for_by_the_clock() {
    let mut nic = Nic::with(Model::E1000e, true);
    let mut link = Link::of(&mut nic);
    assert_eq!(link.bell.ring(CallReason::Frames), CallResult::Unwanted, "no frame waits");
    link.send(200);
    let CallResult::Later { mut due, called: false } = link.bell.ring(CallReason::Frames) else {
        panic!("no look for descriptors is scheduled")
    };
    match link.bell.ring(CallReason::Frames) {
        CallResult::Unwanted => {}
        // The thread was delayed until that time.
        CallResult::Later { due: next, called: false } if nanoseconds() >= due => due = next,
        other => panic!("the look is scheduled: {other:?}"),
    }
    for look in 0..8 {
        let (before, wait) = (nanoseconds(), 100_000 << look.min(5));
        let CallResult::Later { due: next, called: false } = link.bell.ring_due(CallReason::Frames, due) else {
            panic!("no further look for descriptors is scheduled")
        };
        let right = before + wait..=nanoseconds() + wait;
        assert!(right.contains(&next), "the time of unsuccessful look {look} is {next}, which is not in {right:?}");
        due = next;
    }
    assert_eq!(link.take().len(), 127);
    link.nic.device.chip.lock().page.set(RDT, link.tail());
    assert_eq!(link.bell.ring_due(CallReason::Frames, due), CallResult::Unwanted);
    assert_eq!(link.take(), (127..200).collect::<Vec<_>>());
}
