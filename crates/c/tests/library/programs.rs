//! Programs in C against a running switch, plain, under AddressSanitizer and under valgrind's memcheck.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringway_scenes::Daemon;
use ringway_scenes::namespace::Namespace;
use ringway_testing::child::{Ended, lines};
use ringway_testing::file::directory;
use ringway_testing::skip::{is_installed, is_root};
use ringway_testing::{PATIENCE, skip};
use rustix::process::Signal;

use crate::built::{library, output, root};

/// Warnings that are errors, in every program.
pub const STRICT: [&str; 5] = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"];
const CONFIG: &str = "[switch.lan0]\n[port.bound]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"02:00:00:00:00:09\"\n\
                      [attach]\ncreate = \"ports\"\n";

/// How a program is built and run.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Static,
    Asan,
    Valgrind,
}

struct Program {
    dir: tempfile::TempDir,
    name: &'static str,
    way: Way,
}

impl Program {
    /// Compiles a program of `tests/programs`.
    fn compile(name: &'static str, way: Way) -> Self {
        let dir = directory();
        let mut cc = Command::new("cc");
        cc.args(STRICT).args(["-O1", "-g", "-pthread"]).arg("-I").arg(root().join("crates/c/include"));
        let source = root().join("crates/c/tests/programs").join(name).with_extension("c");
        cc.arg("-o").arg(dir.path().join(name)).arg(source);
        match way {
            Way::Static => cc.arg(library().join("libringway.a")).args(["-lgcc_s", "-ldl", "-lm"]),
            _ => cc.arg("-L").arg(library()).arg("-lringway"),
        };
        if way == Way::Asan {
            cc.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        }
        output(&mut cc);
        Self { dir, name, way }
    }

    fn command(&self, socket: &Path, scene: &str) -> Command {
        let program = self.dir.path().join(self.name);
        let mut command = match self.way {
            Way::Valgrind => {
                let mut command = Command::new("valgrind");
                command.args(["-q", "--error-exitcode=99", "--leak-check=full"]).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.env("LD_LIBRARY_PATH", library()).env("RINGWAY_ATTACH_SOCKET", "/from/the/environment");
        command.arg(socket).arg(scene);
        command
    }

    /// Runs scenes, one after another in one process, each on a switch of its own.
    fn run(&self, scenes: &[&str]) {
        let daemons: Vec<Daemon> = scenes.iter().map(|_| Daemon::start(CONFIG)).collect();
        let sockets = daemons.iter().map(|daemon| daemon.socket("attach.sock").display().to_string());
        succeeds(self.command(Path::new(&sockets.collect::<Vec<_>>().join(",")), &scenes.join(",")));
    }
}

fn succeeds(mut command: Command) {
    let output = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).output();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// The programs with all their scenes but "ended". The signals of "interrupted" come until the program ends.
const VERBS: [&str; 10] =
    ["copy", "batches", "runs", "pieces", "event-loop", "offloads", "threads", "errors", "own-memory", "interrupted"];

const LWEP: [&str; 7] = ["echo", "pipeline", "kept", "long", "ends", "event-loop", "errors"];

fn all_scenes(way: Way) {
    for (name, scenes) in [("verbs", &VERBS[..]), ("lwep", &LWEP[..])] {
        let program = Program::compile(name, way);
        // Valgrind takes longer to begin than for a scene.
        scenes.chunks(if way == Way::Valgrind { scenes.len() } else { 1 }).for_each(|some| program.run(some));
        killed_while_waiting(&program);
        ended_while_waiting(&program);
    }
}

/// Starts the scene "ended", lets `end` act when the program waits, and returns the reason that it got.
fn reason(program: &Program, daemon: &mut Daemon, end: impl FnOnce(&mut Daemon)) -> String {
    reason_of(program.command(&daemon.socket("attach.sock"), "ended"), || end(daemon))
}

fn reason_of(mut command: Command, end: impl FnOnce()) -> String {
    let mut child = Ended(command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap());
    let lines = lines(child.stdout.take().unwrap());
    assert_eq!(lines.recv_timeout(PATIENCE).unwrap(), "waiting");
    end();
    let reason = lines.recv_timeout(PATIENCE).expect("the program should learn of the end");
    assert!(child.end().success());
    reason
}

fn killed_while_waiting(program: &Program) {
    let mut daemon = Daemon::start(CONFIG);
    let reason = reason(program, &mut daemon, |daemon| daemon.kill());
    assert_eq!(reason, "the switch is gone");
}

fn ended_while_waiting(program: &Program) {
    let mut daemon = Daemon::start(CONFIG);
    let reason = reason(program, &mut daemon, |daemon| {
        daemon.ok(&["port", "del", "a"]);
    });
    assert_eq!(reason, "the port was removed");
}

/// A namespace with both ends of a veth pair.
fn veth() -> Namespace {
    let space = Namespace::new();
    space.ok("ip", &["link", "add", "x0", "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "w0"]);
    space.ok("ip", &["link", "set", "w0", "address", "02:00:00:00:00:02", "up"]);
    space.ok("ip", &["link", "set", "x0", "up"]);
    space
}

#[test]
fn lwep_in_c_runs_at_interfaces_of_the_host() {
    if !is_root() {
        skip!("needs root");
    }
    let space = veth();
    for way in [Way::Plain, Way::Asan] {
        let program = Program::compile("lwep", way);
        let command = |scene: &str, [near, far]: [&str; 2]| {
            let mut command = program.command(Path::new("/nonexistent"), scene);
            command.args([near, far]);
            command
        };
        for scene in ["names", "echo", "pipeline", "kept", "long", "event-loop"] {
            space.within(|| succeeds(command(scene, ["dev:x0", "dev:w0"])));
        }
        space.within(|| succeeds(command("echo", ["xdp:x0", "xdp:w0/0"])));
        let down = || drop(space.ok("ip", &["link", "set", "x0", "down"]));
        let reason = space.within(|| reason_of(command("ended", ["dev:x0", "dev:w0"]), down));
        assert_eq!(reason, "network interface \"x0\": it is down: bring it up (ip link set x0 up) and open it again");
        space.ok("ip", &["link", "set", "x0", "up"]);
    }
}

#[test]
fn a_program_in_c_does_all_that_a_program_in_rust_does() {
    all_scenes(Way::Plain);
}

#[test]
fn a_program_with_the_static_library_does_the_same() {
    all_scenes(Way::Static);
}

#[test]
fn address_sanitizer_finds_nothing() {
    all_scenes(Way::Asan);
}

#[test]
fn valgrind_finds_nothing() {
    if !is_installed("valgrind") {
        skip!("needs valgrind");
    }
    all_scenes(Way::Valgrind);
}

#[test]
fn a_programs_own_handler_of_sigbus_is_called_while_it_has_a_port() {
    let (dir, daemon) = (directory(), Daemon::start(CONFIG));
    let program = dir.path().join("sigbus");
    let mut cc = Command::new("cc");
    cc.args(STRICT).arg("-o").arg(&program).arg(root().join("crates/c/tests/programs/sigbus.c"));
    output(cc.arg("-I").arg(root().join("crates/c/include")).arg("-L").arg(library()).arg("-lringway"));
    let run = |way: &str| {
        let mut command = Command::new(&program);
        command.arg(daemon.socket("attach.sock")).arg(way).env("LD_LIBRARY_PATH", library());
        Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).output()
    };
    for way in ["siginfo", "plain"] {
        let output = run(way);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"called\n"[..]), "{way}: {output:?}");
    }
    assert_eq!(run("default").status.signal(), Some(Signal::BUS.as_raw()));
}

#[test]
fn the_header_is_also_one_of_cpp() {
    if !is_installed("g++") {
        skip!("needs g++");
    }
    let dir = directory();
    let source = dir.path().join("header.cpp");
    let text = "#include <ringway.h>\n#include <ringway.h>\nint main() {\n    ringway_shape shape = RINGWAY_SHAPE_INIT;\n    \
                ringway_port *port = nullptr;\n    return ringway_attach(\"/nonexistent\", \"lan0:a\", &shape, &port, nullptr, 0) == \
                RINGWAY_E_UNREACHABLE ? 0 : 1;\n}\n";
    std::fs::write(&source, text).unwrap();
    for standard in ["-std=c++11", "-std=c++20"] {
        let mut cc = Command::new("g++");
        cc.args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror"]).arg("-I").arg(root().join("crates/c/include"));
        cc.arg("-o").arg(dir.path().join("header")).arg(&source).arg("-L").arg(library()).arg("-lringway");
        output(&mut cc);
        output(Command::new(dir.path().join("header")).env("LD_LIBRARY_PATH", library()));
    }
}

/// Compiles the example; `flags` are those of the header and the library.
pub fn compile_example(into: &Path, flags: &[String]) -> PathBuf {
    let program = into.join("echo");
    let mut cc = Command::new("cc");
    cc.args(STRICT).arg("-O2").arg("-o").arg(&program).arg(root().join("crates/c/examples/echo.c")).args(flags);
    output(&mut cc);
    program
}

/// Runs the example on a switch: its frames come back.
pub fn run_example(program: &Path, libraries: &Path) {
    let mut daemon = Daemon::start("[switch.lan0]\n");
    let mut port = daemon.attach("lan0:probe").unwrap();
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries).arg(daemon.socket("attach.sock")).arg("lan0:echo");
    let mut echo = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
    daemon.until_state("echo", "up");
    let frame = ringway_scenes::frame([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], 7);
    for _ in 0..100 {
        while !port.tx().push(&frame) {
            assert!(port.wait_tx(PATIENCE).unwrap());
        }
        port.flush();
        assert!(port.wait_rx(PATIENCE).unwrap(), "the frame comes back");
        let mut seen = Vec::new();
        assert_eq!(port.rx().drain(2, |frame| seen.push(frame.to_vec())), 1);
        assert_eq!((&seen[0][..6], &seen[0][12..]), (&frame[6..12], &frame[12..]));
    }
    daemon.stop();
    assert_eq!(echo.end().code(), Some(1));
}

#[test]
fn the_example_sends_frames_back() {
    let dir = directory();
    let flag = |flag: &str, path: &Path| [flag.to_owned(), path.to_str().unwrap().to_owned()];
    let mut flags: Vec<String> = flag("-I", &root().join("crates/c/include")).into();
    flags.extend(flag("-L", library()));
    flags.push("-lringway".to_owned());
    run_example(&compile_example(dir.path(), &flags), library());
}

#[test]
fn the_lwep_example_answers_requests() {
    let (dir, mut daemon) = (
        directory(),
        Daemon::start(
            "[switch.lan0]\n[port.server]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"02:00:00:00:00:01\"\n\
             [port.client]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"02:00:00:00:00:02\"\n",
        ),
    );
    let program = compile(dir.path(), &root().join("crates/c/examples/lwep-rpc.c"));
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library()).arg(daemon.socket("attach.sock")).args(arguments);
        command
    };
    let (mut server, mut client) = (command(&["lan0:server"]), command(&["lan0:client", "02:00:00:00:00:01"]));
    let mut server = Ended(server.stderr(Stdio::piped()).spawn().unwrap());
    daemon.until_state("server", "up");
    let answers: String = (0..10).map(|number| format!("request {number}\n")).collect();
    assert_eq!(output(&mut client), answers);
    daemon.stop();
    assert_eq!(server.end().code(), Some(1));
}

/// Compiles a program into a folder.
fn compile(into: &Path, source: &Path) -> PathBuf {
    let program = into.join(source.file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(STRICT).arg("-O2").arg("-o").arg(&program).arg(source).arg("-I").arg(root().join("crates/c/include"));
    output(cc.arg("-L").arg(library()).arg("-lringway"));
    program
}

/// Compiles the program in C of a page.
fn compile_page(into: &Path, page: &str) -> PathBuf {
    let guide = std::fs::read_to_string(root().join(page)).unwrap();
    let (_, rest) = guide.split_once("```c\n").expect("a program in C");
    let source = into.join("page.c");
    std::fs::write(&source, rest.split_once("```").unwrap().0).unwrap();
    compile(into, &source)
}

#[test]
fn the_guides_lwep_program_gets_an_answer_at_an_interface() {
    if !is_root() {
        skip!("needs root");
    }
    let (dir, space) = (directory(), veth());
    space.ok("ip", &["link", "set", "w0", "address", "02:00:00:00:00:08"]);
    let command = |program: PathBuf, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", library()).args(arguments);
        command
    };
    let mut server =
        command(compile(dir.path(), &root().join("crates/c/examples/lwep-rpc.c")), &["/nonexistent", "dev:w0"]);
    let mut client = command(compile_page(dir.path(), "docs/guide/lwep.md"), &["dev:x0"]);
    let _server = space.within(|| Ended(server.spawn().unwrap()));
    assert_eq!(space.within(|| output(&mut client)), "hello\n");
}

#[test]
fn the_guides_program_sends_and_receives() {
    let dir = directory();
    let program = compile_page(dir.path(), "docs/guide/programs.md");

    let daemon = Daemon::start("[switch.lan0]\n");
    let mut port = daemon.attach("lan0:other").unwrap();
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", library()).env("RINGWAY_ATTACH_SOCKET", daemon.socket("attach.sock"));
    let child = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut got = 0;
    while got < 64 {
        assert!(port.wait_rx(PATIENCE).unwrap(), "{got} frames of 64");
        got += port.rx().drain(64, |frame| assert_eq!(frame.len(), 60));
    }
    assert!(port.tx().push(&ringway_scenes::frame([0xff; 6], [2, 0, 0, 0, 0, 2], 7)));
    port.flush();
    let output = child.output();
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    let received = format!("{} bytes", ringway_scenes::frame([0; 6], [0; 6], 7).len());
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("64 frames sent") && lines[1] == received, "{said}");
}
