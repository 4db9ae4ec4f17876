//! Functions that only the 82574L has.

use std::sync::Arc;

use ringway_port::front_end::testing::{count, new_eventfd};
use ringway_switch::{BatchStorage, Input as _};

use super::Model;
use super::device::Device;
use super::device_tests::{DESCRIPTORS, Nic};
use super::offsets::*;
use crate::vfio_user::{CONFIG_REGION, Function as _, Mode};

/// Gives the NIC a second ring with `frames` frames in it. Returns its address.
fn second(nic: &Nic, frames: u32) -> u64 {
    let ring = nic.guest.alloc(DESCRIPTORS as usize * 16, 128);
    nic.put(ring, frames);
    nic.write(TDBAL1, ring as u32);
    nic.write(TDBAH1, (ring >> 32) as u32);
    nic.write(TDLEN1, DESCRIPTORS * 16);
    nic.write(TDH1, 0);
    nic.write(TDT1, frames);
    ring
}

/// Returns true if a descriptor was completed.
fn is_done(nic: &Nic, ring: u64, place: u32) -> bool {
    nic.guest.read(ring + u64::from(place) * 16 + 12, 1)[0] & 1 != 0
}

#[test]
fn both_transmit_rings_are_served_and_tell_of_it_apart() {
    let mut nic = Nic::new(Model::E1000e);
    nic.up();
    let calls: Vec<_> = (0..5).map(|_| new_eventfd()).collect();
    let duplicates = calls.iter().map(|call| Some(call.try_clone().expect("a descriptor").into()));
    nic.device.interrupts().set(Mode::MsiX, 5, 0, duplicates);
    // Vector 1 for the first ring, vector 2 for the second.
    nic.write(IVAR, 0x9 << 8 | 0xa << 12);
    nic.write(IMS, TXQ0 | TXQ1);
    nic.send(3);
    let ring = second(&nic, 5);
    let mut passes = [nic.pass(), nic.pass()];
    passes.sort_unstable();
    assert_eq!((passes, nic.pass()), ([3, 5], 0));
    assert_eq!([nic.read(TDH), nic.read(TDH1)], [3, 5]);
    assert!((0..5).all(|place| is_done(&nic, ring, place)) && !is_done(&nic, ring, 5));
    assert_eq!(nic.read(ICR) & (TXQ0 | TXQ1 | TXDW), TXQ0 | TXQ1 | TXDW);
    nic.device.settle();
    nic.write(TDT1, 6);
    nic.put(ring + 5 * 16, 1);
    assert_eq!(nic.pass(), 1);
    nic.device.settle();
    assert_eq!(nic.read(ICR) & (TXQ0 | TXQ1), TXQ1, "the first queue has no new cause");
    let told: Vec<u64> = calls.iter().map(count).collect();
    assert_eq!((told[0], told[3], told[4]), (0, 0, 0), "{told:?}");
    assert!(told[2] > 0, "{told:?}");
}

#[test]
fn rings_that_are_both_full_have_their_turns() {
    let mut nic = Nic::new(Model::E1000e);
    nic.up();
    nic.send(20);
    second(&nic, 20);
    let mut order = Vec::new();
    for _ in 0..4 {
        let mut batch = BatchStorage::new(10).into_batch();
        nic.input.collect(&mut batch).expect("no fault of the port");
        assert_eq!(batch.len(), 10);
        drop(batch);
        nic.input.release();
        order.push([nic.read(TDH), nic.read(TDH1)]);
    }
    assert!(order[..2].contains(&[10, 10]) && order[3] == [20, 20], "{order:?}");
}

#[test]
fn a_second_ring_is_found_anew_and_ends_by_itself() {
    for mapped in [false, true] {
        let mut nic = Nic::with(Model::E1000e, mapped);
        nic.up();
        second(&nic, 2);
        assert_eq!(nic.pass(), 2);
        // A new second ring, which starts at descriptor 0.
        second(&nic, 4);
        assert!(nic.input.pending());
        assert_eq!((nic.pass(), nic.read(TDH1)), (4, 4));
        // A tail beyond the ring stops this ring, but not the first.
        nic.write(TDT1, DESCRIPTORS + 1);
        assert_eq!(nic.pass(), 0);
        nic.send(1);
        assert_eq!((nic.pass(), nic.told()), (1, vec!["ring_tail_out_of_range"]));
        nic.write(TCTL, 0);
        assert!(!nic.input.pending());
    }
}

#[test]
fn the_older_model_has_no_second_ring() {
    let mut nic = Nic::new(Model::E1000);
    nic.up();
    second(&nic, 2);
    assert_eq!((nic.pass(), nic.read(TDT1), nic.told()), (0, 0, vec![]));
}

/// A flush bit that a guest left in a mapped register, where the device did not see the write.
#[test]
fn delays_hold_whatever_bit_a_mapped_register_has_besides() {
    let mut nic = Nic::with(Model::E1000e, true);
    nic.up();
    nic.write(IMS, TXDW);
    let page = |device: &Device| device.chip.lock().page.set(TIDV, FLUSH | 0xffff);
    page(&nic.device);
    nic.put(nic.transmit, 1);
    let mut delayed = nic.guest.read(nic.transmit + 11, 1);
    delayed[0] |= 1 << 7;
    nic.guest.write(nic.transmit + 11, &delayed);
    nic.write(TDT, 1);
    assert_eq!(nic.pass(), 1);
    nic.device.settle();
    assert_eq!(nic.read(ICR) & TXDW, 0, "67 ms are not over");
}

#[test]
fn buffers_of_whole_kib_are_as_long_as_the_driver_says() {
    let nic = Nic::new(Model::E1000e);
    for (kib, bsize, expected) in [(0, 0, 2048), (1, 0, 1024), (3, 1 << 16, 3072), (15, 0, 15_360), (0, 2 << 16, 512)] {
        nic.write(RCTL, kib << 27 | bsize);
        let format = nic.device.output.lock().format;
        assert_eq!(format, super::rings::Format::Legacy { buffer: expected }, "{kib} KiB, {bsize:#x}");
    }
}

#[test]
fn the_status_says_that_an_interrupt_is_pending_and_the_command_takes_the_pin_away() {
    let nic = Nic::new(Model::E1000);
    nic.up();
    let call = new_eventfd();
    let interrupts = Arc::clone(nic.device.interrupts());
    interrupts.set(Mode::Intx, 1, 0, [Some(call.try_clone().expect("a descriptor").into())].into_iter());
    let pending = || {
        let mut status = [0; 2];
        nic.device.read(CONFIG_REGION, 6, &mut status).expect("the status");
        status[0] & 1 << 3 != 0
    };
    let command = |high: u8| nic.device.write(CONFIG_REGION, 4, &[7, high]).expect("the command register");
    nic.read(ICR);
    nic.write(IMS, LSC);
    assert!(!pending());
    command(1 << 2);
    nic.write(ICS, LSC);
    assert!(pending(), "the interrupt is disabled and pending");
    assert_eq!(count(&call), 0);
    command(0);
    assert_eq!(count(&call), 1, "enabled again: the interrupt is still pending");
    nic.read(ICR);
    assert!(!pending());
}

#[test]
fn an_interrupt_of_the_pin_that_was_not_seen_is_taken_back_with_its_cause() {
    let nic = Nic::new(Model::E1000);
    nic.up();
    // Blocking, as a front end may make it: the device must not wait.
    let call = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd");
    let interrupts = Arc::clone(nic.device.interrupts());
    interrupts.set(Mode::Intx, 1, 0, [Some(call.try_clone().expect("a descriptor").into())].into_iter());
    let is_called = || {
        let mut fds = [rustix::event::PollFd::new(&call, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Default::default())).expect("a poll") > 0
    };
    let seen = || rustix::io::read(&call, &mut [0; 8]).expect("an interrupt");
    nic.read(ICR);
    nic.write(IMS, LSC);
    let ways: [&dyn Fn(); 3] =
        [&|| assert_ne!(nic.read(ICR), 0), &|| nic.write(IMC, LSC), &|| nic.write(CTRL, CTRL_RST)];
    for clear in ways {
        nic.write(ICS, LSC);
        assert!(is_called());
        clear();
        assert!(!is_called(), "its cause is gone");
        // Nobody has to unmask what was never seen.
        nic.write(IMS, LSC);
        nic.read(ICR);
    }
    // What was seen is not taken back: the front end unmasks it.
    nic.write(ICS, LSC);
    seen();
    nic.read(ICR);
    nic.write(ICS, LSC);
    assert!(!is_called(), "masked");
    interrupts.mask(false);
    nic.device.unmasked();
    assert!(is_called());
    // Nor is what the front end has masked unmasked by that.
    interrupts.mask(true);
    nic.read(ICR);
    assert!(!is_called());
    nic.write(ICS, LSC);
    assert!(!is_called(), "masked by the front end");
}
