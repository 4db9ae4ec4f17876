//! What happens while a program is compiled. The compiler is a script that waits.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ringway_scenes::{Daemon, PATIENCE_VARIABLE, Said, binary, receive, send};
use ringway_testing::child::Ended;
use ringway_testing::{PATIENCE, skip, until, until_some};
use rustix::process::Signal;

use super::scene::table;

/// A folder with a `ringway` of its own, and with a compiler that is this script.
struct Installed(tempfile::TempDir);

/// Compiles, after the file `gate` has gone. Each compiler that runs is a file `run.PID`.
const GATED: &str = "touch $d/run.$$; while [ -e $d/gate ]; do sleep 0.01; done; rm $d/run.$$; exec $real";

impl Installed {
    fn new(script: &str) -> Installed {
        // On the file system of the command, which gets another name.
        let target = binary().parent().unwrap().to_owned();
        let installed = Installed(tempfile::tempdir_in(&target).unwrap());
        fs::hard_link(binary(), installed.path("ringway")).unwrap();
        let (folder, real) = (installed.path(""), target.join("ringway-program-compiler"));
        let text = format!("#!/bin/sh\nd={} real={}\n{script}\n", folder.display(), real.display());
        fs::write(installed.path("ringway-program-compiler"), text).unwrap();
        fs::set_permissions(installed.path("ringway-program-compiler"), Permissions::from_mode(0o755)).unwrap();
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shut(&self) {
        fs::write(self.path("gate"), "").unwrap();
    }

    fn open(&self) {
        fs::remove_file(self.path("gate")).unwrap();
    }

    /// The number of a compiler that runs.
    fn compiles(&self) -> Option<u32> {
        let names = fs::read_dir(self.0.path()).unwrap().filter_map(|file| file.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix("run.")?.parse().ok()).next()
    }

    fn until_it_compiles(&self) -> u32 {
        until_some("the compiler runs", || self.compiles())
    }

    /// Makes a module that has a counter of this name.
    fn module(&self, file: &str, counter: &str) -> PathBuf {
        let text = format!(
            r#"(module
                (import "ringway" "counter" (func $counter (param i32 i32) (result i32)))
                (import "ringway" "frames_at" (func $frames_at (param i32 i32 i32 i32 i32)))
                (memory (export "memory") 2)
                (data (i32.const 64) "{counter}")
                (func (export "ringway_interface") (result i32) i32.const 1)
                (func (export "ringway_start") (result i32)
                  (call $frames_at (i32.const 8192) (i32.const 16384) (i32.const 64) (i32.const 4096) (i32.const 256))
                  (drop (call $counter (i32.const 64) (i32.const {})))
                  i32.const 0)
                (func (export "ringway_frames") (param i32 i32)))"#,
            counter.len()
        );
        // A daemon never sees a half of it.
        fs::write(self.path("new"), wat::parse_str(text).unwrap()).unwrap();
        fs::rename(self.path("new"), self.path(file)).unwrap();
        self.path(file)
    }

    /// Starts a daemon by a shell, which executes it in this way.
    fn start(&self, way: &str, config: &str) -> Daemon {
        let script = format!("shift; {way} {} \"$@\"", self.path("ringway").display());
        Daemon::start_by(&["sh", "-c", &script, "sh"], config)
    }

    fn run(&self, arguments: &[&str], config: &str) -> Command {
        fs::write(self.path("ringway.toml"), config).unwrap();
        let mut command = Command::new(self.path("ringway"));
        command.arg("--runtime-dir").arg(self.path("run")).arg("run").arg("--config").arg(self.path("ringway.toml"));
        command.args(arguments).env(PATIENCE_VARIABLE, PATIENCE.as_secs().to_string());
        command
    }
}

fn config(module: &std::path::Path) -> String {
    format!("[switch.lan0]\nforwarding = {}\n", table(module, &[]))
}

/// Begins to set a program.
fn begin(daemon: &Daemon, module: &std::path::Path) -> Child {
    let mut command = ringway_scenes::ringway();
    command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(["switch", "set", "lan0"]);
    command.arg(format!("forwarding.program={}", module.display()));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> Said {
    Ended(child).output().into()
}

/// The counters of the program of the only switch.
fn counters(daemon: &Daemon) -> Vec<String> {
    let program = &daemon.status()["switches"][0]["program"];
    program["counters"].as_object().map(|counters| counters.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn a_reload_that_compiles_keeps_neither_the_watchdog_nor_the_end_waiting_and_another_follows_it() {
    let installed = Installed::new(GATED);
    let manager = UnixDatagram::bind(installed.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let message = || {
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };
    let environment = format!(
        "export WATCHDOG_USEC=200000 NOTIFY_SOCKET={}; unset WATCHDOG_PID; exec",
        installed.path("notify").display()
    );
    let mut daemon = installed.start(&environment, "[switch.lan0]\n");
    installed.shut();
    daemon.reload(&config(&installed.module("a.wasm", "first")));
    installed.until_it_compiles();
    // Those that were sent before are as many as the socket holds: all are read in the end.
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 64]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    for _ in 0..3 {
        assert_eq!(message(), "WATCHDOG=1");
    }
    daemon.signal(Signal::HUP);
    installed.open();
    assert_eq!(daemon.line(), "reloaded: changed switch lan0, loaded the program of switch lan0");
    assert_eq!(daemon.line(), "reloaded: nothing differs");
    assert_eq!(counters(&daemon), ["first"]);
    installed.shut();
    daemon.reload(&config(&installed.module("b.wasm", "second")));
    let compiler = installed.until_it_compiles();
    assert_eq!(daemon.stop().code(), Some(0));
    // The script does not see that; what it executes does.
    installed.open();
    until("the compiler ends, too", || !is_compiler(compiler));
}

/// Returns true if the process of this number is a compiler.
fn is_compiler(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.contains("ringway-program-compiler"))
}

#[test]
fn a_daemon_that_compiles_while_it_starts_ends_at_sigterm() {
    let installed = Installed::new(GATED);
    installed.shut();
    let mut daemon = installed.run(&[], &config(&installed.module("a.wasm", "first")));
    let mut daemon = Ended(daemon.stdout(Stdio::null()).spawn().unwrap());
    let compiler = installed.until_it_compiles();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code(), Some(0));
    // The script does not see that; what it executes does.
    installed.open();
    until("the compiler ends, too", || !is_compiler(compiler));
}

#[test]
fn a_program_that_is_slow_to_load_does_not_replace_a_newer_one() {
    // The first waits.
    let installed = Installed::new(&format!("mkdir $d/first 2>/dev/null || exec $real\n{GATED}"));
    let daemon = installed.start("exec", "[switch.lan0]\n");
    installed.shut();
    let module = installed.module("a.wasm", "old");
    let slow = begin(&daemon, &module);
    installed.until_it_compiles();
    installed.module("a.wasm", "new");
    assert_eq!(end(begin(&daemon, &module)).code, Some(0));
    assert_eq!(counters(&daemon), ["new"]);
    installed.open();
    let said = end(slow);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(counters(&daemon), ["new"], "the same file, as it is now");

    fs::remove_dir(installed.path("first")).unwrap();
    installed.shut();
    let slow = begin(&daemon, &installed.module("b.wasm", "other"));
    installed.until_it_compiles();
    assert_eq!(end(begin(&daemon, &installed.module("c.wasm", "newest"))).code, Some(0));
    installed.open();
    let said = end(slow);
    let wanted =
        "switch \"lan0\" has got another forwarding program while this one was loaded: to replace it, try again";
    assert!(said.code == Some(2) && said.err.contains(wanted), "{said:?}");
    assert_eq!(counters(&daemon), ["newest"]);
}

/// How a daemon is executed that waits ten seconds for programs at its start, as usual, and not as long as tests are patient.
fn usual() -> String {
    format!("exec env {PATIENCE_VARIABLE}=0")
}

/// The first compiler is a [`GATED`] one.
fn first_is_gated() -> Installed {
    let installed = Installed::new(&format!("mkdir $d/first 2>/dev/null || exec $real\n{GATED}"));
    installed.shut();
    installed
}

/// The configuration of two switches with programs.
fn two(one: &std::path::Path, two: &std::path::Path) -> String {
    let switch = |name, module| format!("[switch.{name}]\nforwarding = {}\n", table(module, &[]));
    switch("lan0", one) + &switch("lan1", two)
}

/// The state of each switch's program, by the switch's name.
fn states(daemon: &Daemon) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let status = daemon.status();
    let switches = status["switches"].as_array().unwrap().iter();
    switches.map(|switch| (text(&switch["name"]), text(&switch["program"]["state"]))).collect()
}

#[test]
fn a_switch_whose_program_is_slow_to_load_keeps_neither_others_nor_the_start_waiting() {
    let installed = first_is_gated();
    let (one, other) = (installed.module("a.wasm", "one"), installed.module("b.wasm", "other"));
    // Nobody opens the gate before the daemon is ready.
    let daemon = installed.start(&usual(), &two(&one, &other));
    let states_now = states(&daemon);
    let of = |wanted: &str| states_now.iter().find(|(_, state)| state == wanted).map(|(name, _)| name.clone());
    let (slow, fast) = (of("loading").expect("one is slow"), of("running").expect("one is there"));
    let attach = |switch: &str, name: &str| daemon.attach(&format!("{switch}:{name}")).unwrap();
    let frame =
        [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat().into_iter().chain([0x88, 0xb6]).chain([0; 46]).collect::<Vec<u8>>();
    let (mut fast_from, mut fast_to) = (attach(&fast, "fast1"), attach(&fast, "fast2"));
    send(&mut fast_from, &frame);
    assert_eq!(receive(&mut fast_to, PATIENCE), Some(frame.clone()), "the program of this switch is there");
    let (mut slow_from, mut slow_to) = (attach(&slow, "slow1"), attach(&slow, "slow2"));
    send(&mut slow_from, &frame);
    until("it is dropped", || daemon.port("slow1")["drops"]["program_fault"] == 1);
    // Other changes do without the program.
    daemon.ok(&["port", "add", &format!("{slow}:later"), "kind=process"]);
    installed.open();
    until("the program is there", || states(&daemon).iter().all(|(_, state)| state == "running"));
    send(&mut slow_from, &frame);
    assert_eq!(receive(&mut slow_to, PATIENCE), Some(frame));
}

#[test]
fn a_program_that_comes_after_the_start_does_not_replace_a_newer_one() {
    let installed = first_is_gated();
    let daemon = installed.start(&usual(), &config(&installed.module("a.wasm", "old")));
    assert_eq!(states(&daemon), [("lan0".to_owned(), "loading".to_owned())]);
    let said = end(begin(&daemon, &installed.module("b.wasm", "new")));
    assert_eq!((said.code, counters(&daemon)), (Some(0), vec!["new".to_owned()]), "{}", said.err);
    installed.open();
    daemon.complains("switch lan0 has got another program, or none, while its first one was loaded");
    assert_eq!(counters(&daemon), ["new"]);
}

#[test]
fn a_switch_whose_program_cannot_be_loaded_after_the_start_forwards_nothing_until_it_is_set_again() {
    let installed =
        Installed::new("if [ -e $d/good ]; then exec $real; fi; while [ -e $d/gate ]; do sleep 0.01; done; exit 1");
    installed.shut();
    let module = installed.module("a.wasm", "first");
    let daemon = installed.start(&usual(), &config(&module));
    installed.open();
    daemon.complains("drops all frames: cannot load the program");
    let state = |daemon: &Daemon| states(daemon)[0].1.clone();
    until("the status says so", || state(&daemon) == "failed");
    daemon.ok(&["port", "add", "lan0:other", "kind=process"]);
    fs::write(installed.path("good"), "").unwrap();
    assert_eq!(end(begin(&daemon, &module)).code, Some(0));
    assert_eq!((state(&daemon).as_str(), counters(&daemon)), ("running", vec!["first".to_owned()]));
}

#[test]
fn the_programs_of_a_change_are_compiled_side_by_side() {
    let installed = Installed::new(GATED);
    let daemon = installed.start("exec", "[switch.lan0]\n[switch.lan1]\n");
    installed.shut();
    daemon.reload(&two(&installed.module("a.wasm", "one"), &installed.module("b.wasm", "other")));
    let compilers = || fs::read_dir(installed.path("")).unwrap().filter(|file| is_run(file.as_ref().unwrap())).count();
    until("both are compiled at the same time", || compilers() == 2);
    installed.open();
    assert!(daemon.line().starts_with("reloaded: "));
    assert!(states(&daemon).iter().all(|(_, state)| state == "running"));
}

/// Returns true if this is the file of a compiler that runs.
fn is_run(file: &fs::DirEntry) -> bool {
    file.file_name().to_string_lossy().starts_with("run.")
}

#[test]
fn the_compiler_of_a_client_that_has_gone_ends() {
    let installed = Installed::new(GATED);
    let daemon = installed.start("exec", "[switch.lan0]\n");
    installed.shut();
    let client = Ended(begin(&daemon, &installed.module("a.wasm", "first")));
    let compiler = installed.until_it_compiles();
    assert!(is_compiler(compiler));
    drop(client);
    until("the compiler has ended", || !is_compiler(compiler));
    installed.open();
    assert!(daemon.status()["switches"][0]["program"].is_null());
}

#[test]
fn a_daemon_whose_parent_ignores_ended_children_compiles() {
    let installed = Installed::new("exec $real");
    let module = installed.module("a.wasm", "first");
    let daemon = installed.start("exec env --ignore-signal=CHLD", &config(&module));
    assert_eq!(counters(&daemon), ["first"]);
}

#[test]
fn a_compiler_that_others_can_replace_is_not_used_and_the_check_of_a_configuration_says_so() {
    let installed = Installed::new("exec $real");
    let (compiler, module) = (installed.path("ringway-program-compiler"), installed.module("a.wasm", "first"));
    let checked = |config: &str| -> Said { installed.run(&["--check"], config).output().unwrap().into() };
    assert_eq!(checked(&config(&module)).out, "valid: 1 switches, 0 ports\n");
    let daemon = installed.start("exec", "[switch.lan0]\n");
    fs::set_permissions(&compiler, Permissions::from_mode(0o757)).unwrap();
    let real = compiler.canonicalize().unwrap().display().to_string();
    let wanted = format!("others can write to {real}, and put another program in its place: \"chmod go-w\" it");
    for (said, code) in [(end(begin(&daemon, &module)), 1), (checked(&config(&module)), 0)] {
        assert!(said.code == Some(code) && said.err.contains(&wanted), "{said:?}");
    }
    fs::remove_file(&compiler).unwrap();
    for (said, code) in [(end(begin(&daemon, &module)), 1), (checked(&config(&module)), 0)] {
        assert!(said.code == Some(code) && said.err.contains("neither in"), "{said:?}");
    }
    assert_eq!(checked("[switch.lan0]\n").code, Some(0), "no program, no compiler");
}

#[test]
fn what_only_the_opener_may_look_at_is_found_and_seen_to_change() {
    if !rustix::process::geteuid().is_root() {
        skip!("folders of other users need root");
    }
    let installed = Installed::new("exec $real");
    // The copy's owner is trusted with the compiler beside it. The switch is root without a capability: it may not enter the folder.
    fs::remove_file(installed.path("ringway")).unwrap();
    fs::copy(binary(), installed.path("ringway")).unwrap();
    let module = installed.path("a.wasm");
    fs::write(&module, "no module").unwrap();
    let stranger = Some(65534);
    for place in ["", "ringway", "ringway-program-compiler"] {
        chown(installed.path(place), stranger, stranger).unwrap();
    }
    fs::set_permissions(installed.path(""), Permissions::from_mode(0o700)).unwrap();
    let daemon = installed.start("exec", &config(&module));
    let detail = || daemon.status()["switches"][0]["program"]["detail"].to_string();
    until("it is no module", || detail().contains("no WebAssembly module"));
    installed.module("a.wasm", "first");
    until("it is another one", || daemon.status()["switches"][0]["program"]["state"] == "running");
    assert_eq!(counters(&daemon), ["first"]);
}

/// The compiler of a module that has this text stands still at a gate.
fn gated_by(text: &str) -> Installed {
    let script = format!(
        "cat >$d/in.$$; if grep -q {text} $d/in.$$; then touch $d/run.$$; while [ -e $d/gate ]; do sleep 0.01; done; rm $d/run.$$; fi\n\
         echo x >>$d/compiled; exec $real <$d/in.$$"
    );
    let installed = Installed::new(&script);
    installed.shut();
    installed
}

#[test]
fn a_missing_program_that_is_slow_to_compile_keeps_no_other_missing_one_away_and_no_change() {
    let installed = gated_by("slow");
    let (slow, fast) = (installed.path("slow.wasm"), installed.path("fast.wasm"));
    let daemon = installed.start("exec", &two(&slow, &fast));
    installed.module("slow.wasm", "slow");
    let compiler = installed.until_it_compiles();
    // It comes while the other one is compiled.
    installed.module("fast.wasm", "quick");
    let state = |at: usize| states(&daemon)[at].1.clone();
    until("the other one runs", || state(1) == "running");
    assert!(std::path::Path::new(&format!("/proc/{compiler}")).exists(), "the slow one is not waited for");
    daemon.ok(&["port", "add", "lan0:a", "kind=process"]);
    daemon.signal(Signal::HUP);
    assert_eq!(daemon.line(), "reloaded: nothing differs");
    assert_eq!(state(0), "failed");
    installed.open();
    until("the slow one runs, too", || state(0) == "running");
}

#[test]
fn a_program_that_failed_late_is_missing_only_where_the_switch_still_is_to_have_it() {
    let installed = Installed::new(
        "cat >$d/in.$$; if grep -q first $d/in.$$; then touch $d/run.$$; while [ -e $d/gate ]; do sleep 0.01; done; exit 1; fi\n\
         exec $real <$d/in.$$",
    );
    installed.shut();
    let first = installed.module("a.wasm", "first");
    let daemon = installed.start(&usual(), &config(&first));
    assert_eq!(states(&daemon), [("lan0".to_owned(), "loading".to_owned())]);
    daemon.ok(&["switch", "set", "lan0", "forwarding=learning"]);
    installed.open();
    let said = until_some("the daemon hears of it", || {
        Some(daemon.complaint())
            .filter(|line| line.contains("another program, or none") || line.contains("drops all frames"))
    });
    assert!(said.contains("switch lan0 has got another program, or none, while its first one was loaded"), "{said}");
}

#[test]
fn a_late_program_that_is_for_other_pollers_and_cannot_be_loaded_again_keeps_no_change_of_its_switch_away() {
    let installed = first_is_gated();
    let module = installed.module("a.wasm", "first");
    let daemon = installed.start(&usual(), &config(&module));
    assert_eq!(states(&daemon), [("lan0".to_owned(), "loading".to_owned())]);
    daemon.reload(&format!("[engine]\ncores = [0, 1]\n{}", config(&module)));
    assert!(daemon.line().starts_with("reloaded: "));
    // It was read before.
    fs::remove_file(&module).unwrap();
    installed.open();
    let said =
        until_some("the daemon cannot use it", || Some(daemon.complaint()).filter(|line| line.contains("cannot load")));
    assert!(said.contains("drops all frames") && said.contains("No such file"), "{said}");
    daemon.ok(&["port", "add", "lan0:a", "kind=process"]);
    daemon.ok(&["switch", "set", "lan0", "broadcast=drop"]);
    assert_eq!(states(&daemon)[0].1, "failed");
    installed.module("a.wasm", "second");
    until("it is there", || states(&daemon)[0].1 == "running");
    assert_eq!(daemon.status()["switches"][0]["program"]["instances"], 2);
}
