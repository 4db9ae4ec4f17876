//! `ringway exec` and the library for libpcap programs: Debian's programs and one in C, on ports of a real daemon.

mod c_program;
mod commands;
mod devices;
mod hostile_daemon;
mod programs;
mod together;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ringway_scenes::{Daemon, Said, ringway, until};
use ringway_testing::child::Ended;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const ALL: [u8; 6] = [0xff; 6];

/// `ringway exec` with these arguments. Programs that hang are ended.
fn exec(daemon: &Daemon, args: &[&str]) -> Command {
    let mut command = ringway();
    command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(["exec", "--", "timeout", "--kill-after=1", "900"]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a program to its end.
fn run(daemon: &Daemon, args: &[&str]) -> Said {
    exec(daemon, args).output().unwrap().into()
}

/// Starts a program that opens `port`, and waits until the port is up.
fn start(daemon: &Daemon, port: &str, args: &[&str]) -> Ended {
    let mut child = Ended(exec(daemon, args).spawn().unwrap());
    until(&format!("{args:?} has opened {port}"), || {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "{args:?} has ended: {ended:?}: {}", said(&mut child).err);
        daemon.port(port)["state"] == "up"
    });
    child
}

fn said(child: &mut Child) -> Said {
    let mut text = [String::new(), String::new()];
    let read = |from: Option<&mut dyn std::io::Read>, into: &mut String| from.map(|from| from.read_to_string(into));
    let _ = read(child.stdout.as_mut().map(|from| from as &mut dyn std::io::Read), &mut text[0]);
    let _ = read(child.stderr.as_mut().map(|from| from as &mut dyn std::io::Read), &mut text[1]);
    let [out, err] = text;
    Said { out, err, code: None }
}

/// Waits for the end of a program, which must succeed. Returns what it wrote.
fn succeed(child: Ended) -> Said {
    let said: Said = child.output().into();
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    said
}

fn text(path: &Path) -> &str {
    OsStr::to_str(path.as_os_str()).unwrap()
}
