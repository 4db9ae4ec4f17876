//! The daemon serves on, and ends when it is asked to, whatever becomes of its log: the disk is full, the reader has gone, or the reader
//! does not read.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ringway_client::{Port, Shape};
use ringway_scenes::{PATIENCE, PATIENCE_VARIABLE, binary, ringway, until, until_some};
use ringway_testing::child::Ended;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::Signal;
use serde_json::Value;

/// Bytes of a mistake in the configuration, which the log shows.
const MISTAKE: usize = 240_000;

struct Daemon {
    child: Ended,
    dir: tempfile::TempDir,
}

impl Daemon {
    fn start(stdout: Stdio, stderr: Stdio) -> Self {
        Self::start_as(ringway(), stdout, stderr)
    }

    fn start_as(mut command: Command, stdout: Stdio, stderr: Stdio) -> Self {
        let dir = ringway_testing::file::directory();
        std::fs::write(dir.path().join("c.toml"), "").unwrap();
        command.arg("run").arg("--config").arg(dir.path().join("c.toml")).arg("--runtime-dir").arg(dir.path());
        // Its last lines are not waited for as long as for other things in tests.
        command.env_remove(PATIENCE_VARIABLE);
        let child = Ended(command.stdout(stdout).stderr(stderr).spawn().unwrap());
        let mut daemon = Self { child, dir };
        until("the daemon is ready", || {
            assert_eq!(daemon.child.try_wait().unwrap(), None, "it has ended");
            UnixStream::connect(daemon.path("control.sock")).is_ok()
        });
        daemon
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn status(&mut self) -> Value {
        let answer = until_some("the daemon answers", || {
            assert_eq!(self.child.try_wait().unwrap(), None, "it has ended");
            let mut control = UnixStream::connect(self.path("control.sock")).ok()?;
            control.set_read_timeout(Some(PATIENCE)).unwrap();
            control.write_all(b"GET /v1/status HTTP/1.1\r\nhost: ringway\r\nconnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            control.read_to_string(&mut answer).ok()?;
            Some(answer)
        });
        serde_json::from_str(answer.split_once("\r\n\r\n").expect("an answer").1).unwrap()
    }

    /// Has it write to its log until lines are lost.
    fn loses_lines(&mut self) {
        std::fs::write(self.path("c.toml"), format!("[engine]\nbatch = \"{}\"\n", "x".repeat(MISTAKE))).unwrap();
        let before = self.status()["log_lines_lost"].as_u64();
        until("lines are lost", || {
            self.child.signal(Signal::HUP);
            self.status()["log_lines_lost"].as_u64() > before
        });
    }

    fn serves_clients(&mut self) {
        let port = Port::attach(self.path("attach.sock"), "lan0:a", Shape::default()).expect("a port");
        assert_eq!(self.status()["ports"][0]["state"], "up");
        drop(port);
    }

    fn ends(mut self) {
        self.child.signal(Signal::TERM);
        assert_eq!(self.child.end().code(), Some(0));
    }
}

/// A pipe without room.
fn full_pipe(flags: PipeFlags) -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    fcntl_setpipe_size(&writer, 4096).unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, b"\n") != Err(Errno::AGAIN) {}
    rustix::io::ioctl_fionbio(&writer, flags.contains(PipeFlags::NONBLOCK)).unwrap();
    (reader, writer)
}

fn lives_with(stderr: impl Into<Stdio>) {
    let mut daemon = Daemon::start(Stdio::null(), stderr.into());
    daemon.loses_lines();
    daemon.serves_clients();
    daemon.ends();
}

#[test]
fn a_full_disk_does_not_end_the_daemon() {
    lives_with(File::options().write(true).open("/dev/full").unwrap());
}

#[test]
fn a_file_that_may_not_grow_does_not_end_the_daemon() {
    let mut command = Command::new("prlimit");
    command.arg("--fsize=4096").arg(binary());
    let mut daemon = Daemon::start_as(command, Stdio::null(), tempfile::tempfile().unwrap().into());
    daemon.loses_lines();
    daemon.ends();
}

#[test]
fn a_reader_that_has_gone_does_not_end_the_daemon() {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    drop(reader);
    lives_with(writer);
}

#[test]
fn a_full_pipe_that_does_not_block_does_not_end_the_daemon() {
    let (_reader, writer) = full_pipe(PipeFlags::NONBLOCK);
    lives_with(writer);
}

#[test]
fn a_reader_that_does_not_read_holds_nobody_up_and_is_told_what_it_has_missed() {
    let (reader, writer) = full_pipe(PipeFlags::empty());
    let mut daemon = Daemon::start(Stdio::null(), writer.into());
    daemon.loses_lines();
    daemon.serves_clients();
    let mut log = BufReader::new(File::from(reader));
    let mut line = String::new();
    while !line.contains("lines of the log were lost: its reader was too slow") {
        line.clear();
        assert!(log.read_line(&mut line).expect("a line") > 0);
    }
    daemon.loses_lines();
    daemon.ends();
}

#[test]
fn nobody_has_to_read_standard_output_either() {
    let (_reader, writer) = full_pipe(PipeFlags::empty());
    let mut daemon = Daemon::start(writer.into(), Stdio::null());
    daemon.child.signal(Signal::HUP);
    daemon.serves_clients();
    daemon.ends();
}

/// Runs a daemon whose stderr is a file, with this variable, until it has said something. Returns the lines.
fn said_to_a_file(stream: impl Fn(&std::fs::Metadata) -> String) -> Vec<String> {
    let folder = ringway_testing::file::directory();
    let path = folder.path().join("stderr");
    let file = File::create(&path).unwrap();
    let mut command = ringway();
    command.env("JOURNAL_STREAM", stream(&file.metadata().unwrap()));
    let mut daemon = Daemon::start_as(command, Stdio::null(), file.into());
    std::fs::write(daemon.path("c.toml"), "[switch.lan0]\nbroadcast = \"port:nobody\"\n").unwrap();
    daemon.child.signal(Signal::HUP);
    until("the first file is in force", || !daemon.status()["warnings"].as_array().unwrap().is_empty());
    std::fs::write(daemon.path("c.toml"), "nonsense\n").unwrap();
    daemon.child.signal(Signal::HUP);
    let lines = until_some("the second one is refused", || {
        let said = std::fs::read_to_string(&path).unwrap();
        said.contains("not reloaded").then(|| said.lines().map(str::to_owned).collect())
    });
    daemon.ends();
    lines
}

#[test]
fn lines_carry_their_priority_where_the_journal_takes_them() {
    use std::os::linux::fs::MetadataExt;
    let id = |meta: &std::fs::Metadata| format!("{}:{}", meta.st_dev(), meta.st_ino());
    let lines = said_to_a_file(id);
    assert!(lines.iter().any(|line| line.starts_with("<4> WARN key \"switch.lan0.broadcast\"")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("<3>ringway run: not reloaded")), "{lines:#?}");
    // A stream that the daemon has not inherited is no matter.
    let lines = said_to_a_file(|meta| id(meta) + "1");
    assert!(lines.iter().all(|line| !line.starts_with('<')), "{lines:#?}");
}
