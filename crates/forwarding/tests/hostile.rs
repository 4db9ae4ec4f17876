//! Programs that are no programs, want too much, fail, or try to leave their memory.

mod support;

use std::time::{Duration, Instant};

use ringway_forwarding::{FaultKind, Program, ProgramState};
use ringway_switch::{Destination, DropReason, OnFault};
use ringway_testing::until;
use support::{Lan, PRELUDE, START, dropped, frame, frames, load, mac, module};

/// The faults of a program, those that happened.
fn faults(program: &Program) -> Vec<(FaultKind, u64)> {
    program.read().faults.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_module_that_is_not_acceptable_is_refused_with_the_reason() {
    let lan = Lan::new(2);
    let refused = |bytes: &[u8]| load(&lan, bytes).expect_err("refused").to_string();
    let text = |text: &str| refused(&wat::parse_str(text).expect("a module"));
    assert_eq!(refused(b""), "the file is empty");
    assert_eq!(refused(b"\x7fELF"), "it is no WebAssembly module: it does not begin with the bytes 00 61 73 6d");
    assert_eq!(refused(b"(module)"), "it is a WebAssembly text: translate it first, for instance with wat2wasm");
    assert!(refused(b"\0asm\x01\0\0\0\xff").starts_with("it is no WebAssembly module: "));
    assert_eq!(refused(&vec![0; (4 << 20) + 1]), "the module has 4194305 bytes: 4194304 are the most");
    assert_eq!(text("(module)"), "the module does not export \"memory\"");
    assert_eq!(text("(module (func (export \"memory\")))"), "the export \"memory\" is no memory");
    assert_eq!(
        text("(module (memory (export \"memory\") 1025))"),
        "the module wants 67174400 bytes of memory: 67108864 are the most"
    );
    assert_eq!(text("(module (memory (export \"memory\") 1))"), "the module does not export \"ringway_interface\"");
    assert_eq!(
        text("(module (memory (export \"memory\") 1) (func (export \"ringway_interface\") (result i64) i64.const 1))"),
        "the export \"ringway_interface\" must be a function () -> i32"
    );
    assert_eq!(
        text("(module (import \"env\" \"puts\" (func (param i32))) (memory (export \"memory\") 1))"),
        "the module imports \"env.puts\", which Ringway does not have: only functions of the interface, from the module \
         \"ringway\", can be imported"
    );
    // Names of the module reach terminals and the log.
    assert_eq!(
        text(&format!("(module (import \"env\" \"\\1b[2J\\n{}\" (func)))", "x".repeat(1000))),
        format!(
            "the module imports \"env.\\u{{1b}}[2J\\n{}...\", which Ringway does not have: only functions of the interface, from \
             the module \"ringway\", can be imported",
            "x".repeat(59)
        )
    );
    let twice = "(export \"\\1b\" (memory 0))".repeat(2);
    assert!(text(&format!("(module (memory 1) {twice})")).contains("\\u{1b}"));
    assert!(text("(module (import \"ringway\" \"log\" (func (param i64))))").contains("does not export \"memory\""));
    let whole = |body: &str| refused(&module(body));
    assert_eq!(whole(START), "the module does not export \"ringway_frames\"");
    let frames = "(func (export \"ringway_frames\") (param i32 i32))";
    assert_eq!(
        whole(&format!("{START} {frames} (func (export \"ringway_timr\"))")),
        "the module exports \"ringway_timr\", which the interface does not have"
    );
    let start = |body: &str| whole(&format!("(func (export \"ringway_start\") (result i32) {body}) {frames}"));
    assert_eq!(start("i32.const 0"), "ringway_start did not call frames_at");
    assert_eq!(start("i32.const 3"), "the program refuses to start: ringway_start returned 3");
    assert_eq!(start("unreachable"), "ringway_start failed: trap: the instruction \"unreachable\"");
    assert_eq!(
        start("(call $frames_at (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)) i32.const 0"),
        "ringway_start failed: call: frames_at: the capacity is 0: give 1 to 1024"
    );
    assert!(
        start("(drop (call $counter (i32.const 0) (i32.const 3))) i32.const 0")
            .starts_with("ringway_start failed: call: \"\\0\\0\\0\" is no name of a counter")
    );
    assert_eq!(
        start("loop br 0 end i32.const 0"),
        "ringway_start failed: time: a call took more than 1s of processor time"
    );
    let older = PRELUDE.replace("i32.const 1)", "i32.const 2)");
    let older = wat::parse_str(format!("(module {older} {START} {frames})")).expect("a module");
    assert_eq!(refused(&older), "the module is for version 2 of the interface: this Ringway has version 1");
    assert!(text("(module (memory (export \"memory\") 1) (memory 1))").contains("multi"));
}

/// The fault of a batch by a module with this `ringway_frames`; what the batch's frames then do.
fn fault_of(body: &str, on_fault: OnFault) -> (String, Destination, Loaded) {
    let mut lan = Lan::new(3);
    let program = load(&lan, &frames(body)).expect("a program");
    let switch = lan.switch(&program, on_fault);
    let destinations = lan.forward(&switch, 0, &[frame(mac(9), mac(0))]);
    let (fault, _) = program.read().last_fault.expect("a fault");
    (fault.to_string(), destinations[0], program)
}

type Loaded = std::sync::Arc<Program>;

#[test]
fn what_a_program_does_wrong_is_named_and_its_batch_goes_the_way_of_on_fault() {
    for (body, fault) in [
        ("unreachable", "trap: the instruction \"unreachable\""),
        ("(drop (i32.load (i32.const -1)))", "trap: an access outside of the memory"),
        ("(i32.store (i32.const 0x20000) (i32.const 1))", "trap: an access outside of the memory"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "trap: a division by zero"),
        (
            "(drop (memory.grow (i32.const 1023)))",
            "memory: the memory was to grow to 67174400 bytes: it may have 67108864",
        ),
        (
            "(call $log (i32.const 131071) (i32.const 2))",
            "pointer: a host function was given 2 bytes at 131071: the memory has 131072",
        ),
        (
            "(call $log (i32.const -1) (i32.const -1))",
            "pointer: a host function was given 4294967295 bytes at 4294967295: the memory has 131072",
        ),
        (
            "(drop (call $config (i32.const 131072) (i32.const 1)))",
            "pointer: a host function was given 1 bytes at 131072: the memory has 131072",
        ),
        (
            "(drop (call $ports (i32.const 0) (i32.const 0x7fffffff)))",
            "pointer: a host function was given 4294967294 bytes at 0: the memory has 131072",
        ),
        (
            "(call $port_set (i32.const 64) (i32.const 0) (i32.const 0))",
            "call: port_set: there is no set 64: give 0 to 63",
        ),
        (
            "(call $port_set (i32.const 0) (i32.const 0) (i32.const 5000))",
            "call: port_set: 5000 ports: a switch has 4096 at most",
        ),
        (
            "(drop (call $mac_lookup (i32.const 131067) (i32.const 0)))",
            "pointer: a host function was given 6 bytes at 131067: the memory has 131072",
        ),
        (
            "(drop (call $mac_lookup (i32.const 0) (i32.const 4096)))",
            "call: there is no VLAN 4096: give that of a descriptor",
        ),
        (
            "(drop (call $map_set (i32.const 0) (i32.const 65) (i32.const 0) (i32.const 0)))",
            "call: a key of the map has 65 bytes: give 1 to 64",
        ),
        (
            "(drop (call $map_set (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 257)))",
            "call: a value of the map has 257 bytes: give 0 to 256",
        ),
        (
            "(drop (call $map_get (i32.const 0) (i32.const 1) (i32.const -8) (i32.const 9)))",
            "pointer: a host function was given 9 bytes at 4294967288: the memory has 131072",
        ),
        (
            "(call $counter_add (i32.const 0) (i64.const 1))",
            "call: there is no counter 0: register it in ringway_start",
        ),
        ("(call $gauge_set (i32.const -1) (i64.const 1))", "call: there is no gauge -1: register it in ringway_start"),
        ("(call $timer_set (i64.const -1))", "call: timer_set: -1 ns is no time"),
        (
            "(drop (call $counter (i32.const 0) (i32.const 1)))",
            "call: counter was called by ringway_frames: only ringway_start may call it",
        ),
        (
            "(call $save (i32.const 0) (i32.const 1))",
            "call: save was called by ringway_frames: only ringway_save may call it",
        ),
        (
            "(call $verdicts (local.get $count) (i32.const 1))",
            "verdict: a verdict is 0x1: no such verdict, port or set",
        ),
        (
            "(call $verdicts (local.get $count) (i32.const 0x10fff))",
            "verdict: a verdict is 0x10fff: no such verdict, port or set",
        ),
        (
            "(call $verdicts (local.get $count) (i32.const 0x30000))",
            "verdict: a verdict is 0x30000: no such verdict, port or set",
        ),
        (
            "(call $verdicts (local.get $count) (i32.const 0x40000))",
            "verdict: a verdict names drop reason 0, which is not registered",
        ),
    ] {
        let (said, destination, program) = fault_of(body, OnFault::Learning);
        assert_eq!((&said[..], destination), (fault, Destination::Flood), "{body}");
        assert_eq!(faults(&program).len(), 1, "{body}");
        let (_, destination, _) = fault_of(body, OnFault::Drop);
        assert_eq!(dropped(destination), Some(DropReason::ProgramFault), "{body}");
    }
}

#[test]
fn an_exhausted_stack_and_wrong_indirect_calls_cost_the_batch() {
    let lan = Lan::new(3);
    let with = |functions: &str, body: &str| {
        module(&format!("{functions} {START} (func (export \"ringway_frames\") (param i32 i32) {body})"))
    };
    let table = "(type $nothing (func)) (table 3 3 funcref) (elem (i32.const 1) $verdicts)";
    for (module, fault) in [
        (with("(func $deep (call $deep) (call $deep))", "(call $deep)"), "trap: the stack is exhausted"),
        (with(table, "(call_indirect (type $nothing) (i32.const 0))"), "trap: an indirect call of no function"),
        (
            with(table, "(call_indirect (type $nothing) (i32.const 1))"),
            "trap: an indirect call of a function of another type",
        ),
        (with(table, "(call_indirect (type $nothing) (i32.const 3))"), "trap: an access outside of a table"),
    ] {
        let mut lan2 = Lan::new(3);
        let program = load(&lan, &module).expect("a program");
        let switch = lan2.switch(&program, OnFault::Drop);
        assert_eq!(dropped(lan2.forward(&switch, 0, &[frame(mac(9), mac(0))])[0]), Some(DropReason::ProgramFault));
        assert_eq!(program.read().last_fault.expect("a fault").0.to_string(), fault);
    }
}

#[test]
fn an_endless_loop_is_ended_and_then_sooner() {
    let mut lan = Lan::new(3);
    let program = load(&lan, &frames("loop br 0 end")).expect("a program");
    let switch = lan.switch(&program, OnFault::Learning);
    let one = [frame(mac(9), mac(0))];
    let mut ended = || {
        assert_eq!(lan.forward(&switch, 0, &one), [Destination::Flood]);
        program.read().last_fault.expect("a fault").0.to_string()
    };
    let (mut begun, mut calls) = (Instant::now(), 1);
    assert_eq!(ended(), "time: a call took more than 1ms of processor time");
    // The time of a call is shorter for ten seconds only. A machine that holds this test up for longer has it try again.
    until("a call is ended sooner", || {
        until("a new instance", || {
            program.tell("").is_err_and(|error| error.to_string().contains("takes no messages"))
        });
        let before = std::mem::replace(&mut begun, Instant::now());
        let said = ended();
        calls += 1;
        let is_sooner = said == "time: a call took more than 100\u{b5}s of processor time";
        assert!(is_sooner || before.elapsed() >= Duration::from_secs(10), "{said}");
        is_sooner
    });
    assert_eq!(faults(&program), [(FaultKind::Time, calls)]);
}

#[test]
fn three_faults_within_a_second_take_a_program_out() {
    let mut lan = Lan::new(3);
    let program = load(&lan, &frames("(call $verdicts (local.get $count) (i32.const 7))")).expect("a program");
    let switch = lan.switch(&program, OnFault::Drop);
    let one = [frame(mac(9), mac(0))];
    // However slow the machine is, three of them come within a second at some time.
    let mut count = 0;
    until("the program is taken out", || {
        lan.forward(&switch, 0, &one);
        count += 1;
        assert_eq!(faults(&program), [(FaultKind::Verdict, count)]);
        assert!(count >= 3 || !program.is_out());
        program.is_out()
    });
    assert!(matches!(program.read().state, ProgramState::Failed(fault) if fault.kind == FaultKind::Verdict));
    assert_eq!(dropped(lan.forward(&switch, 0, &one)[0]), Some(DropReason::ProgramFault));
    assert_eq!(faults(&program), [(FaultKind::Verdict, count)], "it is not asked any more");
}

#[test]
fn an_instance_that_failed_begins_anew_with_empty_memory() {
    // Traps if the last byte of the memory is not zero.
    let body = "(if (i32.load8_u (i32.const 131071)) (then unreachable)) (i32.store8 (i32.const 131071) (i32.const 1))";
    let mut lan = Lan::new(3);
    let program = load(&lan, &frames(body)).expect("a program");
    let switch = lan.switch(&program, OnFault::Drop);
    let one = [frame(mac(9), mac(0))];
    let mut forward = || lan.forward(&switch, 0, &one)[0];
    assert_eq!(forward(), Destination::Flood);
    assert_eq!(dropped(forward()), Some(DropReason::ProgramFault));
    until("a new instance", || forward() == Destination::Flood);
    assert_eq!(faults(&program)[0], (FaultKind::Trap, 1));
}

#[test]
fn a_start_section_that_never_ends_or_calls_the_host_is_refused() {
    let lan = Lan::new(1);
    let refused =
        |body: &str| load(&lan, &module(&format!("{START} (func (export \"ringway_frames\") (param i32 i32)) {body}")));
    let said = |body: &str| refused(body).expect_err("refused").to_string();
    assert_eq!(
        said("(func $begin loop br 0 end) (start $begin)"),
        "the start section failed: time: a call took more than 1s of processor time"
    );
    assert_eq!(
        said("(func $begin (call $log (i32.const 0) (i32.const 1))) (start $begin)"),
        "the start section failed: call: a host function was called by the start section: call it in ringway_start"
    );
}

/// The first fault of a program that gets batches of so many frames each. The thread that ends calls may have no processor during some
/// of them.
fn first_fault(module: &[u8], frames: usize) -> Vec<(FaultKind, u64)> {
    let mut lan = Lan::new(3);
    let program = load(&lan, module).expect("a program");
    let switch = lan.switch(&program, OnFault::Learning);
    let frames = vec![frame(mac(9), mac(0)); frames];
    until("a fault", || {
        lan.forward(&switch, 0, &frames);
        !faults(&program).is_empty()
    });
    faults(&program)
}

#[test]
fn a_batch_has_the_time_of_one_call_if_it_comes_in_several() {
    // Takes 0.3 ms for each frame of its own.
    let start = START.replace("(i32.const 256)", "(i32.const 1)");
    let body = "(local $begun i64) (local.set $begun (call $now_ns))
        loop (br_if 0 (i64.lt_u (i64.sub (call $now_ns) (local.get $begun)) (i64.const 300000))) end";
    let module = module(&format!("{start} (func (export \"ringway_frames\") (param i32 i32) {body})"));
    assert_eq!(first_fault(&module, 100), [(FaultKind::Time, 1)]);
}

#[test]
fn a_single_instruction_that_takes_too_long_is_a_fault() {
    let body = "(if (i32.lt_u (memory.size) (i32.const 1024)) (then (drop (memory.grow (i32.const 1022)))))
        (memory.fill (i32.const 0x20000) (local.get $count) (i32.const 0x3fe0000))";
    assert_eq!(first_fault(&frames(body), 1), [(FaultKind::Time, 1)]);
}

#[test]
fn a_name_as_long_as_the_memory_takes_no_time() {
    let once = "(drop (call $port_by_name (i32.const 0x20000) (i32.const 0x3fe0000)))";
    let grow = "(if (i32.lt_u (memory.size) (i32.const 1024)) (then (drop (memory.grow (i32.const 1022)))))";
    let mut lan = Lan::new(3);
    let program = load(&lan, &frames(&format!("{grow} {}", once.repeat(20)))).expect("a program");
    let switch = lan.switch(&program, OnFault::Learning);
    (0..3).for_each(|_| drop(lan.forward(&switch, 0, &[frame(mac(9), mac(0))])));
    assert_eq!(faults(&program), []);
}
