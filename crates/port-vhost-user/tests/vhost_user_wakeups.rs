//! Machines' frames wake sleeping pollers: no frame stays in its ring, also after refused frames.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use ringway_engine::Idle;
use ringway_port_tests::vhost_user::{Lan, PATIENCE, Raw, Vm, frame};
use ringway_port_vhost_user::Role;
use ringway_testing::random::Random;
use ringway_testing::until;

const EVENT_IDX: u64 = 1 << 29;
/// Number of bursts of a machine. The poller may fall asleep between two bursts.
const BURSTS: usize = 4000;

/// Waits until the port has marked all sent chains as used.
#[track_caller]
fn all_used(vm: &Vm, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (sent, used) = vm.sent_and_used();
        if sent == used {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {used} of {sent} chains were used, the others wait without end");
        std::thread::yield_now();
    }
}

#[test]
fn a_ring_without_a_kick_descriptor_is_served_while_the_poller_sleeps() {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let engine = lan.run(Idle::Sleep);
    let mut b = Vm::connect(&lan.socket(1));
    let stream = UnixStream::connect(lan.socket(0)).expect("connected");
    let raw = Raw(stream.try_clone().expect("a descriptor"));
    let mut a = Vm::from_stream(stream);
    // SET_VRING_KICK of queue 1: bit 8 says that there is no descriptor.
    assert!(raw.tell(12, &0x101u64.to_ne_bytes(), &[]));
    a.front_is_done();
    for number in 0..50 {
        let before = engine.readings()[0].sleeps;
        until("the poller sleeps", || engine.readings()[0].sleeps > before);
        b.post(1);
        let sent = frame(1, 0, 60, number);
        a.send(&sent);
        all_used(&a, "a polled ring");
        assert_eq!(b.receive_some(1), [sent]);
    }
}

/// Sends each burst after the earlier frames were taken, so that it finds a poller that polls, arms or sleeps.
fn no_burst_stands_still(idle: Idle, event_idx: bool) {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let _engine = lan.run(idle);
    let mut vm = Vm::new(vhost::vhost_user::Frontend::connect(lan.socket(0), 4).expect("connected"));
    vm.negotiate(if event_idx { EVENT_IDX } else { 0 });
    vm.start();
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    for burst in 0..BURSTS {
        let (from, _) = vm.sent_and_used();
        // One kind or several: without a receiver, unknown flags, refused offloads, too short for a header or a frame.
        let kinds = [1, 5][random.below(2) as usize];
        let first = random.below(5);
        for number in 0..1 + random.below(3) {
            let frame = frame(7, 0, 60, number as u32);
            match (first + random.below(kinds)) % 5 {
                0 => vm.send(&frame),
                1 => vm.send_behind(&[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &frame),
                2 => vm.send_behind(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &frame),
                3 => vm.send_behind(&[0; 5], &[]),
                _ => vm.send_behind(&[0; 12], &frame[..3]),
            }
        }
        vm.kick_from(from, event_idx);
        all_used(&vm, &format!("burst {burst}"));
        // About as long as an adaptive poller polls before it sleeps. Yielding would wait for all that shares the processor.
        for _ in 0..random.below(4) * random.below(30) * 50 {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn bursts_of_refused_frames_leave_no_frame_behind_at_a_poller_that_sleeps_at_once() {
    no_burst_stands_still(Idle::Sleep, false);
    no_burst_stands_still(Idle::Sleep, true);
}

#[test]
fn bursts_of_refused_frames_leave_no_frame_behind_at_a_poller_that_looks_for_a_while() {
    let idle = Idle::Adaptive(std::time::Duration::from_micros(50));
    no_burst_stands_still(idle, false);
    no_burst_stands_still(idle, true);
}
