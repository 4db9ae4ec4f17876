//! What verdicts become, under the policy of the switch.

mod support;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ringway_forwarding::Program;
use ringway_switch::policy::Rules;
use ringway_switch::{Destination, DropReason, Mac, OnFault, Program as _};
use ringway_testing::until;
use support::{Lan, START, dropped, frame, frames, load, load_with, mac, module};

/// A `ringway_frames` that leaves all frames to the built-in function.
const FRAMES: &str = r#"(func (export "ringway_frames") (param $count i32) (param $port i32))"#;

/// All frames get this verdict.
fn always(word: u32) -> Vec<u8> {
    frames(&format!("(call $verdicts (local.get $count) (i32.const {word:#x}))"))
}

fn forward(lan: &mut Lan, module: &[u8], sent: &[Vec<u8>]) -> (Vec<Destination>, Arc<Program>) {
    let program = load(lan, module).expect("a program");
    let switch = lan.switch(&program, OnFault::Drop);
    (lan.forward(&switch, 0, sent), program)
}

#[test]
fn a_verdict_decides_where_a_frame_goes() {
    let mut lan = Lan::new(4);
    let one = [frame(mac(9), mac(0)), frame(mac(8), mac(7))];
    assert_eq!(forward(&mut lan, &always(0x1_0002), &one).0, [Destination::Port(2); 2]);
    assert_eq!(forward(&mut lan, &always(0x2_0000), &one).0, [Destination::Flood; 2]);
    assert_eq!(lan.table.lookup(mac(0)), None, "only the built-in function learns by itself");
    assert_eq!(forward(&mut lan, &always(0), &one).0, [Destination::Flood; 2]);
    assert!(lan.table.lookup(mac(0)).is_some() && lan.table.lookup(mac(7)).is_some());
    assert_eq!(dropped(forward(&mut lan, &always(0x1_0000), &one).0[0]), Some(DropReason::SamePort));
}

#[test]
fn frames_of_one_batch_have_verdicts_of_their_own() {
    // By the last byte of the destination: 1 port 1, 2 flood, 3 drop, others built in.
    let body = r#"
        (local $i i32) (local $to i32)
        loop $next
          (local.set $to (i32.load8_u (i32.add (i32.const 16389) (i32.mul (local.get $i) (i32.const 64)))))
          (i32.store (i32.add (i32.const 4096) (i32.mul (local.get $i) (i32.const 4)))
            (select (i32.const 0x10001) (select (i32.const 0x20000) (select (i32.const 0x40000) (i32.const 0)
              (i32.eq (local.get $to) (i32.const 3))) (i32.eq (local.get $to) (i32.const 2))) (i32.eq (local.get $to) (i32.const 1))))
          (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $count)))
        end"#;
    let start =
        START.replace("i32.const 0)\n", "(drop (call $drop_reason (i32.const 64) (i32.const 4))) i32.const 0)\n");
    let program = module(&format!(
        "(data (i32.const 64) \"nope\") {start} (func (export \"ringway_frames\") (param $count i32) (param $port i32) {body})"
    ));
    let mut lan = Lan::new(4);
    let sent: Vec<Vec<u8>> = [1, 2, 3, 4, 1, 0].map(|to| frame(mac(to), mac(0))).into();
    let (got, program) = forward(&mut lan, &program, &sent);
    let nope = Destination::Drop(DropReason::ProgramDropped);
    let built_in = Destination::Flood;
    assert_eq!(got[..5], [Destination::Port(1), Destination::Flood, nope, built_in, Destination::Port(1)]);
    // The built-in function has learned the source of the frames that it decided.
    assert_eq!(dropped(got[5]), Some(DropReason::SamePort));
    assert_eq!(program.read().drops, [("nope".to_owned(), 1)]);
    assert_eq!(program.read().batches, 1);
}

#[test]
fn policy_holds_above_a_program() {
    let sent = [frame(mac(9), mac(0))];
    let reason = |lan: &mut Lan, word| dropped(forward(lan, &always(word), &sent).0[0]);
    let mut lan = Lan::new(4);
    lan.rules = Rules { transit: false, ..Rules::ALLOW };
    assert_eq!(reason(&mut lan, 0x1_0002), Some(DropReason::TransitDenied));
    assert_eq!(reason(&mut lan, 0x2_0000), Some(DropReason::TransitDenied));
    let mut lan = Lan::new(4);
    lan.mirror = Some(2);
    assert_eq!(reason(&mut lan, 0x1_0002), Some(DropReason::NoDestination));
    // A source that no station has, and the bridges' own groups.
    let mut lan = Lan::new(4);
    let reason = |lan: &mut Lan, sent| dropped(forward(lan, &always(0x2_0000), &[sent]).0[0]);
    assert_eq!(reason(&mut lan, frame(mac(9), Mac::BROADCAST)), Some(DropReason::BadSource));
    let lldp = Mac::new([1, 0x80, 0xc2, 0, 0, 0x0e]);
    assert_eq!(reason(&mut lan, frame(lldp, mac(0))), Some(DropReason::BridgeReserved));
}

#[test]
fn a_port_that_has_left_is_no_fault() {
    let mut lan = Lan::new(4);
    // Generation 3 of port 2, which is there in generation 0.
    let (got, program) = forward(&mut lan, &always(0x1_3002), &[frame(mac(9), mac(0))]);
    assert_eq!(dropped(got[0]), Some(DropReason::NoDestination));
    assert_eq!(program.read().last_fault, None);
}

#[test]
fn a_program_learns_and_looks_up_by_the_table_of_the_switch() {
    // Learns each source, and sends to the port of the destination or floods.
    let body = r#"
        (local $to i32)
        (if (i32.eqz (call $mac_learn (i32.const 16390) (i32.const 0))) (then unreachable))
        (local.set $to (call $mac_lookup (i32.const 16384) (i32.const 0)))
        (call $verdicts (local.get $count)
          (select (i32.const 0x20000) (i32.or (i32.const 0x10000) (local.get $to)) (i32.lt_s (local.get $to) (i32.const 0))))"#;
    let mut lan = Lan::new(4);
    lan.generation = 5;
    let program = load(&lan, &frames(body)).expect("a program");
    let switch = lan.switch(&program, OnFault::Drop);
    assert_eq!(lan.forward(&switch, 1, &[frame(mac(2), mac(1))]), [Destination::Flood]);
    assert_eq!(lan.forward(&switch, 2, &[frame(mac(1), mac(2))]), [Destination::Port(1)]);
    assert_eq!(lan.forward(&switch, 1, &[frame(mac(2), mac(1))]), [Destination::Port(2)]);
    assert_eq!(program.read().last_fault, None);
}

#[test]
fn a_large_batch_comes_in_parts_and_short_frames_are_filled_up_with_zeroes() {
    // A capacity of 2; traps unless byte 63 of the first head is that of a frame of 64 bytes, or 0 behind a short one.
    let start = START.replace("(i32.const 256)", "(i32.const 2)");
    let body = r#"
        (if (i32.gt_u (local.get $count) (i32.const 2)) (then unreachable))
        (if (i32.ne (i32.load8_u (i32.const 16447))
              (select (i32.const 7) (i32.const 0) (i32.eq (i32.load (i32.const 8192)) (i32.const 64)))) (then unreachable))
        (call $verdicts (local.get $count) (i32.add (i32.const 0x10000) (i32.load8_u (i32.const 16389))))"#;
    let program =
        module(&format!("{start} (func (export \"ringway_frames\") (param $count i32) (param $port i32) {body})"));
    let mut lan = Lan::new(4);
    let short = frame(mac(3), mac(0))[..20].to_vec();
    let sent = [frame(mac(1), mac(0)), frame(mac(1), mac(0)), short, frame(mac(2), mac(0)), frame(mac(2), mac(0))];
    let (got, program) = forward(&mut lan, &program, &sent);
    assert_eq!(program.read().last_fault, None);
    assert_eq!(got, [1, 1, 3, 3, 2].map(Destination::Port));
}

#[test]
fn the_ports_are_shown_before_the_first_batch_and_after_each_change() {
    // Sends to the port that has the name "p2" at present; fails without.
    let module = module(&format!(
        r#"(data (i32.const 64) "p2") (global $to (mut i32) (i32.const -1)) {START}
        (func (export "ringway_ports") (global.set $to (call $port_by_name (i32.const 64) (i32.const 2))))
        (func (export "ringway_frames") (param $count i32) (param $port i32)
          (if (i32.lt_s (global.get $to) (i32.const 0)) (then unreachable))
          (call $verdicts (local.get $count) (i32.or (i32.const 0x10000) (global.get $to))))"#
    ));
    let mut lan = Lan::new(3);
    let program = load(&lan, &module).expect("a program");
    for generation in [0, 1] {
        lan.generation = generation;
        let switch = lan.switch(&program, OnFault::Drop);
        assert_eq!(lan.forward(&switch, 0, &[frame(mac(9), mac(0))]), [Destination::Port(2)], "{generation}");
    }
}

/// Counts batches in memory; saves and restores the number; counts messages and timers in its counter.
fn counting() -> Vec<u8> {
    module(
        r#"(data (i32.const 64) "seen") (data (i32.const 80) "key") (global $counter (mut i32) (i32.const 0))
        (func (export "ringway_start") (result i32)
          (call $frames_at (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 4096) (i32.const 256))
          (global.set $counter (call $counter (i32.const 64) (i32.const 4)))
          (drop (call $gauge (i32.const 64) (i32.const 4)))
          i32.const 0)
        (func (export "ringway_frames") (param $count i32) (param $port i32)
          (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
          (drop (call $map_set (i32.const 80) (i32.const 3) (i32.const 0) (i32.const 4)))
          (call $gauge_set (i32.const 0) (i64.extend_i32_s (i32.load (i32.const 0)))))
        (func (export "ringway_timer") (call $counter_add (global.get $counter) (i64.const 100)))
        (func (export "ringway_tell") (param $length i32) (result i32)
          (if (i32.ne (local.get $length) (call $message (i32.const 128) (i32.const 8))) (then unreachable))
          (if (i32.eq (i32.load8_u (i32.const 128)) (i32.const 63))
            (then (call $log (i32.const 128) (local.get $length)) (return (i32.const 1))))
          (call $counter_add (global.get $counter) (i64.const 1))
          (call $timer_set (i64.const 1000000))
          i32.const 0)
        (func (export "ringway_save") (call $save (i32.const 0) (i32.const 4)))
        (func (export "ringway_restore") (param $length i32) (result i32)
          (if (i32.ne (call $restore (i32.const 0) (i32.const 0) (i32.const 100)) (i32.const 4)) (then (return (i32.const 1))))
          (i32.sub (call $map_get (i32.const 80) (i32.const 3) (i32.const 256) (i32.const 4)) (i32.const 4)))"#,
    )
}

#[test]
fn the_state_of_a_program_goes_to_the_one_that_replaces_it() {
    let mut lan = Lan::new(2);
    let first = load(&lan, &counting()).expect("a program");
    let switch = lan.switch(&first, OnFault::Drop);
    let one = [frame(mac(9), mac(0))];
    lan.forward(&switch, 0, &one);
    lan.forward(&switch, 0, &one);
    let second = load_with(&lan, &counting(), "", Some(&first)).expect("a program");
    let switch = lan.switch(&second, OnFault::Drop);
    lan.forward(&switch, 0, &one);
    assert_eq!(second.read().gauges, [("seen".to_owned(), 3)]);
    assert_eq!(second.read().entries, 1);
    // A program that saves nothing.
    let other = load(&lan, &always(0)).expect("a program");
    let third = load_with(&lan, &counting(), "", Some(&other)).expect("a program");
    assert_eq!((third.read().gauges, third.read().entries), (vec![("seen".to_owned(), 0)], 0));
}

#[test]
fn messages_reach_a_program_and_its_timer_fires_without_traffic() {
    let lan = Lan::new(2);
    let program = load(&lan, &counting()).expect("a program");
    program.tell("hello").expect("told");
    until("the timer", || program.read().counters == [("seen".to_owned(), 101)]);
    let refused = program.tell("?what").expect_err("refused");
    assert_eq!(refused.to_string(), "the program refuses the message: ?what");
    assert_eq!(program.read().last_fault, None);
}

#[test]
fn a_program_does_not_keep_ports_that_have_left() {
    let mut lan = Lan::new(2);
    let program = load(&lan, &frames("")).expect("a program");
    let (switch, port) = (lan.switch(&program, OnFault::Drop), lan.port(0));
    lan.forward(&switch, 0, &[frame(mac(1), mac(0))]);
    drop((switch, lan));
    assert_eq!((port.strong_count(), program.instances()), (0, 1));
}

/// Uses up this many rounds of a loop that takes about a nanosecond each.
fn burn(rounds: u32) -> String {
    format!(
        "(local $i i32) loop $on (br_if $on (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {rounds}))) end"
    )
}

#[test]
fn a_poller_does_not_wait_while_a_message_is_handled_and_has_its_turn_between_them() {
    const TURNS: usize = 10;
    let body =
        format!("(func (export \"ringway_tell\") (param $length i32) (result i32) {} i32.const 0)", burn(100_000));
    let lan = Lan::new(2);
    let program = load(&lan, &module(&format!("{START} {FRAMES} {body}"))).expect("a program");
    let told = Arc::clone(&program);
    let (is_over, over) = mpsc::channel::<()>();
    let messages = thread::spawn(move || {
        while over.try_recv() == Err(mpsc::TryRecvError::Empty) {
            told.tell("x").expect("told");
        }
    });
    // Turns after it was refused. That it has one between each two messages: see `slot`.
    let (mut turns, mut is_refused) = (0, false);
    until("the poller has its turns", || {
        if program.enter() {
            turns += usize::from(std::mem::take(&mut is_refused));
            program.leave();
        } else {
            is_refused = true;
        }
        turns == TURNS
    });
    drop(is_over);
    messages.join().expect("all were told");
    assert_eq!(program.read().last_fault, None);
}

/// Counts timers of 1 ms.
fn ticking() -> Vec<u8> {
    module(&format!(
        r#"(data (i32.const 64) "ticks") {FRAMES}
        (func (export "ringway_start") (result i32)
          (call $frames_at (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 4096) (i32.const 256))
          (drop (call $counter (i32.const 64) (i32.const 5)))
          (call $timer_set (i64.const 1000000))
          i32.const 0)
        (func (export "ringway_timer") (call $counter_add (i32.const 0) (i64.const 1)) (call $timer_set (i64.const 1000000)))"#
    ))
}

#[test]
fn the_timers_of_other_programs_go_on_while_a_poller_stays_with_a_program() {
    let lan = Lan::new(2);
    let [held, other] = [(); 2].map(|()| load(&lan, &ticking()).expect("a program"));
    let ticks = |program: &Program| program.read().counters[0].1;
    // As a poller does while the memory of a client makes it wait.
    assert!(held.enter());
    until("20 timers of the other fire between two of the one that is held", || {
        let (before, begun) = (ticks(&held), ticks(&other));
        until("timers fire", || ticks(&other) >= begun + 20);
        ticks(&held) == before
    });
    held.leave();
    let before = ticks(&held);
    until("its own timers go on", || ticks(&held) >= before + 20);
}

#[test]
fn the_timers_of_other_programs_go_on_while_a_program_starts_anew() {
    let ticking = ticking();
    // Takes long to start, and traps at its first batch.
    let slow = module(&format!(
        r#"(func (export "ringway_start") (result i32) {}
          (call $frames_at (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 4096) (i32.const 256))
          i32.const 0)
        (func (export "ringway_frames") (param $count i32) (param $port i32) unreachable)"#,
        burn(150_000_000)
    ));
    let mut lan = Lan::new(2);
    let ticking = load(&lan, &ticking).expect("a program");
    let slow = load(&lan, &slow).expect("a program");
    let ticks = || ticking.read().counters[0].1;
    let switch = lan.switch(&slow, OnFault::Drop);
    // It is there again when it judges a batch, which is a fault again.
    let mut fail = || {
        let faults = || slow.read().faults[0].1;
        let before = faults();
        until("the program is there and fails", || {
            lan.forward(&switch, 0, &[frame(mac(9), mac(0))]);
            faults() > before
        });
    };
    until("20 timers fire while the program is started anew", || {
        fail();
        let before = ticks();
        fail();
        // The thread that fires timers may have had no processor meanwhile. Faults that are not seconds apart would take the program out.
        ticks() >= before + 20 || {
            thread::sleep(Duration::from_secs(5));
            false
        }
    });
}
