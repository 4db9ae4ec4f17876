//! A daemon of one test, and the command against it.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod flood;
pub mod testpmd;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ringway_client::{AttachError, Port, Shape};
use serde_json::Value;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The command itself.
pub fn ringway() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ringway"))
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a command writes UTF-8");
        Self { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
    }
}

/// A running `ringway run` in a directory of its own; ended when dropped.
pub struct Daemon {
    child: Child,
    lines: Receiver<String>,
    complaints: Receiver<String>,
    dir: tempfile::TempDir,
}

impl Daemon {
    /// Starts with this configuration and waits for "ready".
    pub fn start(config: &str) -> Self {
        Self::start_by(&[], config)
    }

    /// The same by way of a command that executes its arguments, such as `unshare`.
    pub fn start_by(way: &[&str], config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ringway.toml"), config).unwrap();
        Self::start_in(dir, way)
    }

    fn start_in(dir: tempfile::TempDir, way: &[&str]) -> Self {
        let line = [way, &[env!("CARGO_BIN_EXE_ringway")]].concat();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        command.arg("run").arg("--config").arg(dir.path().join("ringway.toml"));
        command.arg("--runtime-dir").arg(dir.path().join("run"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let complaints = lines_of(child.stderr.take().unwrap());
        let daemon = Self { child, lines, complaints, dir };
        assert_eq!(daemon.line(), "ready");
        daemon
    }

    /// The next line of its stdout.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the daemon should say something")
    }

    /// Waits until its stderr has a line that holds this.
    pub fn complains(&self, wanted: &str) {
        while !self.complaints.recv_timeout(PATIENCE).expect("the daemon should complain").contains(wanted) {}
    }

    /// Its runtime directory.
    pub fn runtime_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs `ringway ARGS` against it.
    pub fn ringway(&self, args: &[&str]) -> Said {
        ringway().arg("--runtime-dir").arg(self.runtime_dir()).args(args).output().unwrap().into()
    }

    /// Runs `ringway ARGS`, which must succeed; gives its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let said = self.ringway(args);
        assert_eq!(said.code, Some(0), "ringway {args:?}: {}", said.err);
        said.out
    }

    /// `ringway status --json`.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["status", "--json"])).unwrap()
    }

    /// One port's part of the status.
    pub fn port(&self, name: &str) -> Value {
        let status = self.status();
        let ports = status["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Puts another configuration in the file's place, and sends SIGHUP.
    pub fn reload(&self, config: &str) {
        let (new, file) = (self.dir.path().join("new.toml"), self.dir.path().join("ringway.toml"));
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, file).unwrap();
        self.signal(rustix::process::Signal::HUP);
    }

    /// Attaches a client.
    pub fn attach(&self, name: &str) -> Result<Port, AttachError> {
        Port::attach(self.runtime_dir().join("attach.sock"), name, Shape::default())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends it with SIGKILL; another takes its place in the same directories.
    pub fn replace(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        *self = Self::start_in(dir, &[]);
    }

    /// Ends it with SIGTERM and waits.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "SIGTERM should end the daemon");
            std::thread::yield_now();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is written to a pipe, line by line.
fn lines_of(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
    lines
}

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// A frame of 60 bytes from one station to another; the number is in its payload.
pub fn frame(to: [u8; 6], from: [u8; 6], number: u8) -> [u8; 60] {
    let mut frame = [number; 60];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Sends one frame.
pub fn send(port: &mut Port, frame: &[u8]) {
    assert!(port.tx().push(frame), "there should be room");
    port.flush();
}

/// Receives one frame, if one comes within `patience`.
pub fn receive(port: &mut Port, patience: Duration) -> Option<Vec<u8>> {
    let mut frame = None;
    if port.wait_rx(patience).expect("the port should stay") {
        port.rx().drain(1, |bytes| frame = Some(bytes.to_vec()));
    }
    frame
}

/// Receives until the switch ends the port; gives the reason.
pub fn why_ended(port: &mut Port) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Err(why) = port.wait_rx(PATIENCE) {
            return why.to_string();
        }
        port.rx().drain(64, |_| {});
        assert!(Instant::now() < deadline, "the switch should end the port");
    }
}

/// Whether a path is gone.
pub fn gone(path: &Path) -> bool {
    !path.exists()
}
