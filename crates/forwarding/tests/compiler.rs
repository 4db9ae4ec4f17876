//! The process that compiles modules: what it makes runs, and what it cannot do is said.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringway_forwarding::{Compiler, Load, Program, Runtime, Unacceptable};
use ringway_switch::{Destination, OnFault};
use ringway_testing::child::Ended;
use ringway_testing::{until, until_some};
use support::{Lan, frame, frames, mac, module};

const COMPILER: &str = env!("CARGO_BIN_EXE_ringway-program-compiler");

fn load(compiler: Compiler, module: &[u8]) -> Result<Arc<Program>, Unacceptable> {
    let runtime = Runtime::with(compiler).expect("a runtime");
    let view = Arc::new(Lan::new(2).view());
    let stop = &AtomicBool::new(false);
    Program::load(&runtime, Load { module, switch: "lan0", config: "", pollers: 1, view: &view, before: None, stop })
}

/// Why a module is refused. A program is too large to be shown.
fn refused(compiler: Compiler, module: &[u8]) -> Unacceptable {
    match load(compiler, module) {
        Ok(_) => panic!("the module is accepted"),
        Err(why) => why,
    }
}

/// A compiler that is this shell script.
struct Script(tempfile::TempDir);

impl Script {
    fn new(text: &str) -> Script {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("compiler"), format!("#!/bin/sh\n{text}\n")).expect("a file");
        fs::set_permissions(folder.path().join("compiler"), fs::Permissions::from_mode(0o755)).expect("a mode");
        Script(folder)
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn path(&self) -> PathBuf {
        self.folder().join("compiler")
    }

    /// Why a module that is acceptable is refused.
    fn refuses(&self, module: &[u8]) -> Unacceptable {
        refused(Compiler::At(self.path()), module)
    }
}

/// A module that sends all frames to port 1.
fn good() -> Vec<u8> {
    frames("(call $verdicts (local.get $count) (i32.const 0x10001))")
}

/// A module whose compilation takes seconds and hundreds of megabytes: one function of nested blocks with many live values.
fn costly() -> Vec<u8> {
    let locals = 20_000;
    let mut body = "(local i64) ".repeat(locals);
    for block in 0..20_000 {
        let (from, to) = (1 + block % locals, 1 + (block * 7 + 3) % locals);
        body += &format!(
            "(if (i32.eqz (local.get $count)) (then (local.set {} (i64.add (local.get {}) (i64.extend_i32_u (local.get $count))))))",
            to + 1,
            from + 1
        );
    }
    frames(&body)
}

#[test]
fn what_the_process_compiles_judges_frames_as_what_this_process_compiles() {
    for compiler in [Compiler::At(COMPILER.into()), Compiler::Here] {
        let program = load(compiler, &good()).expect("acceptable");
        let mut lan = Lan::new(2);
        let switch = lan.switch(&program, OnFault::Drop);
        let went: Vec<Destination> = lan.forward(&switch, 0, &[frame(mac(2), mac(1))]);
        assert_eq!(went, [Destination::Port(1)]);
    }
}

#[test]
fn what_the_process_refuses_is_said_as_this_process_says_it() {
    for module in [&b"\0asm\x01\0\0\0\xff"[..], b"\0asm\x02\0\0\0", b"\0asm\x01\0\0\0\x01\x04\x01\x60\0"] {
        let said = |compiler| refused(compiler, module);
        assert_eq!(said(Compiler::At(COMPILER.into())), said(Compiler::Here));
    }
}

#[test]
fn without_a_compiler_the_message_says_where_it_is_looked_for_and_how_to_install_it() {
    // Tests are built into a folder that has none.
    let why = refused(Compiler::Installed, &good()).to_string();
    let folder = std::env::current_exe().expect("this program").parent().expect("a folder").display().to_string();
    assert!(why.contains(&format!("neither in {folder} nor in {folder}/../libexec/ringway")), "{why}");
    assert!(why.contains("cargo install --path crates/forwarding --features compiler"), "{why}");
}

#[test]
fn a_module_that_costs_too_much_to_compile_is_refused_with_the_reason() {
    let module = costly();
    // The limits that the compiler inherits are lower than its own.
    let why = Script::new(&format!("ulimit -S -t 1; exec {COMPILER}")).refuses(&module);
    assert_eq!(why.to_string(), "compiling the module takes more than 1 s of processor time");
    let why = Script::new(&format!("ulimit -t 2; exec {COMPILER}")).refuses(&module);
    assert_eq!(why.to_string(), "compiling the module takes more than 1 s of processor time");
    let why = Script::new(&format!("ulimit -v 122880; exec {COMPILER}")).refuses(&module);
    assert_eq!(why.to_string(), "compiling the module takes more than 120 MiB of memory");
    let why = Script::new(&format!("ulimit -t 1; exec {COMPILER}")).refuses(&module).to_string();
    assert!(why.contains("it inherits a limit of 1 s of processor time, which is too little"), "{why}");
}

#[test]
fn a_kernel_that_gives_less_memory_than_the_limit_makes_no_module_unacceptable() {
    let module = costly();
    // Of data, which the compiler does not limit.
    for kib in [10_000, 40_000, 80_000] {
        let why = Script::new(&format!("ulimit -d {kib}; exec {COMPILER}")).refuses(&module);
        assert!(matches!(why, Unacceptable::System(_)), "{kib} KiB: {why:?}");
    }
}

#[test]
fn a_program_that_refuses_to_start_is_tried_again() {
    for start in ["i32.const 1", "unreachable", "i32.const 0"] {
        let start = format!("(func (export \"ringway_start\") (result i32) {start})");
        let judge = "(func (export \"ringway_frames\") (param i32 i32))";
        let why = refused(Compiler::Here, &module(&format!("{start} {judge}")));
        assert!(!why.is_final(), "{why}");
    }
}

#[test]
fn the_end_of_a_compiler_by_the_kernel_names_the_likely_reason() {
    let why = Script::new("echo bounds 60 1073741824 >&2; kill -KILL $$").refuses(&good());
    let wanted = "the process that compiled the module was killed, most likely because the memory of the machine, or of the service, ran out";
    assert_eq!(why, Unacceptable::System(wanted.to_owned()));
    let why = Script::new("echo bounds 60 1073741824 >&2; exit 4").refuses(&good());
    assert_eq!(why.to_string(), "compiling the module takes more than 1024 MiB of memory");
    let why = Script::new("echo bounds 60 1073741824 >&2; kill -SEGV $$").refuses(&good());
    assert_eq!(why.to_string(), "the compiler failed at the module, with signal: 11 (SIGSEGV)");
}

#[test]
fn neither_long_messages_nor_a_process_that_it_leaves_behind_keep_the_end_of_a_compiler_from_being_seen() {
    // More than a pipe holds, in both directions.
    let mut module = good();
    module.extend([0, 0x80, 0x80, 0x40]);
    module.resize(module.len() + (1 << 20), 0);
    let long = Script::new("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 7");
    let why = long.refuses(&module).to_string();
    assert!(why.contains("it ended with exit status: 7 before it read the module: xxx"), "{why}");
    let heir = Script::new("(while [ -e \"$0\" ]; do sleep 0.1; done) & exit 7");
    assert_eq!(
        heir.refuses(&good()).to_string(),
        format!("{}: it ended with exit status: 7 before it read the module", heir.path().display())
    );
}

#[test]
fn a_compiler_that_nobody_waits_for_any_more_is_ended() {
    let script = Script::new("echo $$ >\"$0.pid\"; exec sleep 1000");
    let runtime = Runtime::with(Compiler::At(script.path())).expect("a runtime");
    let (view, module, stop) = (Arc::new(Lan::new(2).view()), good(), AtomicBool::new(false));
    let load = Load { module: &module, switch: "lan0", config: "", pollers: 1, view: &view, before: None, stop: &stop };
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| Program::load(&runtime, load).map(drop));
        until("the compiler runs", || script.folder().join("compiler.pid").exists());
        stop.store(true, Ordering::Relaxed);
        let why = loading.join().expect("no panic").expect_err("stopped");
        assert_eq!(why.to_string(), "nobody waits for the program any more");
    });
}

#[test]
fn few_compilers_run_at_the_same_time() {
    const LOADS: usize = 6;
    // Each says that it runs, and waits until it may end.
    let script =
        Script::new("d=${0%/*}; >$d/run.$$; while [ ! -e $d/end.$$ ]; do sleep 0.01; done; rm $d/run.$$; exit 7");
    let running = || {
        let names = fs::read_dir(script.folder())
            .expect("a folder")
            .filter_map(|file| file.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix("run.").map(str::to_owned)).collect::<Vec<String>>()
    };
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..LOADS).map(|_| scope.spawn(|| script.refuses(&good()))).collect();
        for left in (1..=LOADS).rev() {
            let some = until_some("as many run as may", || Some(running()).filter(|some| some.len() >= left.min(2)));
            assert!(some.len() <= 2, "{some:?}");
            fs::write(script.folder().join(format!("end.{}", some[0])), "").expect("a file");
            until("it has ended", || !running().contains(&some[0]));
        }
        for load in loads {
            assert!(load.join().expect("no panic").to_string().contains("exit status: 7"));
        }
    });
}

#[test]
fn programs_of_one_module_are_compiled_once() {
    let script = Script::new(&format!("echo once >>\"$0.runs\"; exec {COMPILER}"));
    let runtime = Runtime::with(Compiler::At(script.path())).expect("a runtime");
    let view = Arc::new(Lan::new(2).view());
    let load = |module: &[u8]| {
        let stop = &AtomicBool::new(false);
        let load = Load { module, switch: "lan0", config: "", pollers: 1, view: &view, before: None, stop };
        Program::load(&runtime, load).expect("acceptable")
    };
    let runs = || fs::read_to_string(script.folder().join("compiler.runs")).expect("a file").lines().count();
    let programs = [load(&good()), load(&good())];
    assert_eq!(runs(), 1);
    drop((programs, load(&frames("nop"))));
    assert_eq!(runs(), 2, "another module");
    drop(load(&good()));
    assert_eq!(runs(), 3, "no program has it any more");
}

#[test]
fn a_compiler_whose_reader_has_gone_ends_by_itself() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let piped = std::process::Stdio::piped;
    let child = std::process::Command::new(COMPILER).stdin(piped()).stdout(writer).stderr(piped()).spawn();
    let mut child = Ended(child.expect("it starts"));
    // Its standard input stays open.
    assert_eq!(child.end().code(), Some(1));
}

#[test]
fn a_compiler_that_does_not_do_its_work_is_named_with_what_it_did() {
    let ended = Script::new("exit 7");
    let why = ended.refuses(&good()).to_string();
    assert_eq!(why, format!("{}: it ended with exit status: 7 before it read the module", ended.path().display()));
    let why = Script::new("cat >/dev/null; echo hello").refuses(&good()).to_string();
    assert!(why.starts_with("the machine code from the compiler of programs does not fit this ringway"), "{why}");
    let why = refused(Compiler::At("/nowhere/compiler".into()), &good()).to_string();
    assert!(why.starts_with("/nowhere/compiler: "), "{why}");
}

#[test]
fn the_process_bounds_itself_and_gives_up_its_privileges_before_it_reads() {
    let piped = std::process::Stdio::piped;
    let child = std::process::Command::new(COMPILER).stdin(piped()).stdout(piped()).stderr(piped()).spawn();
    let mut child = Ended(child.expect("it starts"));
    let mut said = String::new();
    // Written when all is set.
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut said).expect("a line");
    assert_eq!(said, "bounds 60 1073741824\n");
    let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id())).expect("a process");
    assert_eq!(read("oom_score_adj").trim(), "1000");
    let limits = read("limits");
    for (limit, most) in
        [("address space", "1073741824"), ("cpu time", "60"), ("open files", "16"), ("core file size", "0")]
    {
        let line = limits.lines().find(|line| line.starts_with(&format!("Max {limit} "))).expect("the limit");
        assert_eq!(line.split_whitespace().nth(1 + limit.split(' ').count()), Some(most), "{line}");
    }
    let status = read("status");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{status}");
    }
    let own = fs::read_to_string("/proc/self/status").expect("a process");
    let own = own.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:\t")?, 16).ok());
    // Without CAP_SETPCAP nothing can be taken from that set.
    if own.expect("a set") & 1 << 8 != 0 {
        assert!(status.contains("CapBnd:\t0000000000000000\n"), "{status}");
    }
    let niceness =
        rustix::process::getpriority_process(rustix::process::Pid::from_raw(child.id() as i32)).expect("a number");
    assert!(niceness >= 10, "{niceness}");
}
