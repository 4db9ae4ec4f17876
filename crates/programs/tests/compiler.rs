//! The process that compiles modules: what it makes runs, and what it cannot do is said.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use ringway_programs::{Compiler, Load, Program, Runtime, Unacceptable};
use ringway_switch::{Destination, OnFault};
use ringway_testing::child::Ended;
use ringway_testing::until;
use support::{Lan, frame, frames, mac};

const COMPILER: &str = env!("CARGO_BIN_EXE_ringway-program-compiler");

fn load(compiler: Compiler, module: &[u8]) -> Result<Arc<Program>, Unacceptable> {
    let runtime = Runtime::with(compiler).expect("a runtime");
    let view = Arc::new(Lan::new(2).view());
    Program::load(&runtime, Load { module, switch: "lan0", config: "", pollers: 1, view: &view, before: None })
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

    fn path(&self) -> PathBuf {
        self.0.path().join("compiler")
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
    assert!(why.contains("cargo install --path crates/programs --features compiler"), "{why}");
}

#[test]
fn a_module_that_costs_too_much_to_compile_is_refused_with_the_reason() {
    let module = costly();
    let why = Script::new(&format!("ulimit -S -t 1; exec {COMPILER}")).refuses(&module);
    assert_eq!(why.to_string(), "compiling the module takes more than 60 s of processor time");
    let why = Script::new(&format!("ulimit -v 120000; exec {COMPILER}")).refuses(&module);
    assert_eq!(why.to_string(), "compiling the module takes more than 1024 MiB of memory");
}

#[test]
fn a_compiler_that_does_not_do_its_work_is_named_with_what_it_did() {
    let ended = Script::new("exit 7");
    let why = ended.refuses(&good()).to_string();
    assert_eq!(why, format!("{}: it ended with exit status: 7: ", ended.path().display()));
    let why = Script::new("cat >/dev/null; echo hello").refuses(&good()).to_string();
    assert!(why.starts_with("the machine code from the compiler of programs does not fit this ringway"), "{why}");
    let why = refused(Compiler::At("/nowhere/compiler".into()), &good()).to_string();
    assert!(why.starts_with("/nowhere/compiler: "), "{why}");
}

#[test]
fn the_process_bounds_itself_before_it_reads_and_is_the_first_to_go_for_memory() {
    let piped = std::process::Stdio::piped;
    let child = std::process::Command::new(COMPILER).stdin(piped()).stdout(piped()).stderr(piped()).spawn();
    let child = Ended(child.expect("it starts"));
    let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id())).expect("a process");
    // The last of what it sets.
    until("the process offers itself", || read("oom_score_adj").trim() == "1000");
    let limits = read("limits");
    for (limit, most) in
        [("address space", "1073741824"), ("cpu time", "60"), ("open files", "16"), ("core file size", "0")]
    {
        let line = limits.lines().find(|line| line.starts_with(&format!("Max {limit} "))).expect("the limit");
        assert_eq!(line.split_whitespace().nth(1 + limit.split(' ').count()), Some(most), "{line}");
    }
    assert!(read("status").contains("NoNewPrivs:\t1"));
}
