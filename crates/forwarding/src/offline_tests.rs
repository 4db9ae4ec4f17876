use super::*;

/// A program whose verdicts are words of the frames: the four bytes behind the Ethernet header.
const ECHO: &str = r#"(module
    (import "ringway" "frames_at" (func $frames_at (param i32 i32 i32 i32 i32)))
    (import "ringway" "drop_reason" (func $drop_reason (param i32 i32) (result i32)))
    (import "ringway" "counter" (func $counter (param i32 i32) (result i32)))
    (import "ringway" "counter_add" (func $counter_add (param i32 i64)))
    (import "ringway" "port_set" (func $port_set (param i32 i32 i32)))
    (import "ringway" "timer_set" (func $timer_set (param i64)))
    (import "ringway" "log" (func $log (param i32 i32)))
    (import "ringway" "now_ns" (func $now (result i64)))
    (memory (export "memory") 1)
    (data (i32.const 16) "late")
    (data (i32.const 32) "\00\00\02\00")
    (func (export "ringway_interface") (result i32) (i32.const 1))
    (func (export "ringway_start") (result i32)
        (call $frames_at (i32.const 0) (i32.const 1024) (i32.const 18) (i32.const 512) (i32.const 4))
        (drop (call $drop_reason (i32.const 16) (i32.const 4)))
        (drop (call $counter (i32.const 16) (i32.const 4)))
        (call $port_set (i32.const 5) (i32.const 32) (i32.const 2))
        (call $timer_set (i64.const 5000000000))
        (i32.const 0))
    (func (export "ringway_timer")
        (call $counter_add (i32.const 0) (call $now))
        (call $log (i32.const 16) (i32.const 4)))
    (func (export "ringway_frames") (param $count i32) (param $port i32)
        (local $i i32)
        (loop $next
            (i32.store (i32.add (i32.const 512) (i32.mul (local.get $i) (i32.const 4)))
                (i32.load (i32.add (i32.const 1038) (i32.mul (local.get $i) (i32.const 18)))))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $i) (local.get $count))))
        (if (i32.eq (i32.load (i32.const 1038)) (i32.const 0xdead)) (then unreachable))))"#;

fn start(text: &str) -> Offline {
    let ports = ["a", "b", "c"].map(str::to_owned);
    Offline::with(Compiler::Here, &wat::parse_str(text).unwrap(), "", &ports).unwrap()
}

/// A frame from station `from` to station `to`, with a word behind its header.
fn frame(to: u8, from: u8, word: u32) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5][..], &word.to_le_bytes()].concat()
}

fn judge(program: &mut Offline, from: usize, frames: &[Vec<u8>]) -> Result<Vec<Sent>, Fault> {
    let frames: Vec<OfflineFrame<'_>> = frames.iter().map(|bytes| OfflineFrame { bytes, len: bytes.len() }).collect();
    program.frames(from, &frames)
}

#[test]
fn each_verdict_is_told() {
    let mut program = start(ECHO);
    let words = [0x1_0002, 0x2_0000, 0x3_0005, 0x4_0000];
    let sent = judge(&mut program, 0, &words.map(|word| frame(2, 1, word))).unwrap();
    assert_eq!(sent, [Sent::Port(2), Sent::Flood, Sent::Ports(vec![2]), Sent::Dropped("late".to_owned())]);
    assert_eq!(program.drops(), [("late".to_owned(), 1)]);
    assert_eq!((program.batches(), program.capacity()), (1, 4));
}

#[test]
fn the_built_in_function_learns() {
    let mut program = start(ECHO);
    assert_eq!(judge(&mut program, 0, &[frame(2, 1, 0)]), Ok(vec![Sent::BuiltIn(None)]));
    assert_eq!(judge(&mut program, 1, &[frame(1, 2, 0)]), Ok(vec![Sent::BuiltIn(Some(0))]));
    assert_eq!(judge(&mut program, 0, &[frame(2, 1, 0)]), Ok(vec![Sent::BuiltIn(Some(1))]));
}

#[test]
fn timers_follow_the_given_clock() {
    let mut program = start(ECHO);
    program.advance(Duration::from_secs(4)).unwrap();
    assert_eq!((program.counters(), program.log()), (vec![("late".to_owned(), 0)], vec![]));
    program.advance(Duration::from_secs(3600)).unwrap();
    assert_eq!(program.counters(), [("late".to_owned(), 5_000_000_001)], "when it was due, not when the clock was set");
    assert_eq!(program.log(), ["late"]);
}

#[test]
fn a_fault_is_told_and_the_program_goes_on() {
    let mut program = start(ECHO);
    for (word, kind, what) in [
        (0xdead, FaultKind::Trap, "the instruction \"unreachable\""),
        (7, FaultKind::Verdict, "a verdict is 0x7: no such verdict"),
        (0x1_0003, FaultKind::Verdict, "a verdict is 0x10003: there is no port 3"),
        (0x3_0006, FaultKind::Verdict, "a verdict is 0x30006: set 6 of ports was never set"),
        (0x4_0001, FaultKind::Verdict, "a verdict is 0x40001: drop reason 1 is not registered"),
    ] {
        let fault = judge(&mut program, 0, &[frame(2, 1, word)]).unwrap_err();
        assert_eq!((fault.kind, &*fault.what), (kind, what));
        assert_eq!(judge(&mut program, 0, &[frame(2, 1, 0x2_0000)]), Ok(vec![Sent::Flood]));
    }
}

#[test]
fn a_check_names_everything_that_is_wrong() {
    let text = r#"(module
        (import "env" "abort" (func))
        (import "ringway" "reboot" (func))
        (func (export "ringway_start") (param i32))
        (func (export "ringway_stop")))"#;
    let reasons: Vec<String> =
        check_with(Compiler::Here, &wat::parse_str(text).unwrap()).unwrap().iter().map(ToString::to_string).collect();
    let wanted = [
        "imports \"env.abort\"",
        "imports \"ringway.reboot\"",
        "does not export \"memory\"",
        "does not export \"ringway_interface\"",
        "\"ringway_start\" must be a function () -> i32",
        "does not export \"ringway_frames\"",
        "exports \"ringway_stop\", which the interface does not have",
    ];
    assert!(
        reasons.len() == wanted.len() && reasons.iter().zip(wanted).all(|(reason, wanted)| reason.contains(wanted)),
        "{reasons:#?}"
    );
    assert_eq!(check_with(Compiler::Here, &wat::parse_str(ECHO).unwrap()), Ok(vec![]));
    assert_eq!(check(b"").unwrap()[0].to_string(), "the file is empty");
}
