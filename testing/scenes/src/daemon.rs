//! A daemon of one test, and the command against it.

use std::fs::DirEntry;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ringway_client::{AttachError, Port, Shape};
use ringway_testing::child::{self, Ended, children, is_running, lines};
use ringway_testing::file::directory;
use ringway_testing::{PATIENCE, until, until_some};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

/// Path of the `ringway` command that was built with the running test program.
///
/// # Panics
/// The running program is no test program of cargo's.
#[must_use]
pub fn binary() -> PathBuf {
    // Cargo's CARGO_BIN_EXE_ringway is there for the package of the command alone. Test programs are one folder below the command.
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.parent().and_then(std::path::Path::parent).expect("cargo's deps folder");
    folder.join("ringway")
}

/// Variable with the seconds that the command and the daemon wait at least for a peer (`api/src/patience.rs`). Tests of shorter limits
/// remove it.
pub const PATIENCE_VARIABLE: &str = "RINGWAY_PATIENCE";

/// The command itself, as patient as the tests.
#[must_use]
pub fn ringway() -> Command {
    patient(Command::new(binary()))
}

fn patient(mut command: Command) -> Command {
    command.env(PATIENCE_VARIABLE, PATIENCE.as_secs().to_string());
    command
}

/// What a command wrote and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Written to stdout.
    pub out: String,
    /// Written to stderr.
    pub err: String,
    /// Exit status; none after a signal.
    pub code: Option<i32>,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a command writes UTF-8");
        Self { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
    }
}

/// The name of the switch's process, which the keeper starts.
const SWITCH: &str = "ringway-switch";

/// A running `ringway run` in a directory of its own: its keeper, and the switch below it; ended when dropped.
pub struct Daemon {
    /// The keeper, or the daemon without one.
    child: Ended,
    is_kept: bool,
    /// The switch that was looked up last. 0: none was.
    switch: AtomicU32,
    lines: Receiver<String>,
    complaints: Receiver<String>,
    dir: tempfile::TempDir,
}

// Every method is for tests: whatever goes wrong is a panic.
#[allow(clippy::missing_panics_doc)]
impl Daemon {
    /// Starts with this configuration and waits for "ready".
    #[must_use]
    pub fn start(config: &str) -> Self {
        Self::start_by(&[], config)
    }

    /// Starts a daemon through a command that executes its arguments, for example `unshare`.
    #[must_use]
    pub fn start_by(way: &[&str], config: &str) -> Self {
        let dir = directory();
        std::fs::write(dir.path().join("ringway.toml"), config).unwrap();
        Self::start_in(dir, way)
    }

    /// Starts one process without a keeper, for what is about the end of a switch itself.
    #[must_use]
    pub fn start_alone(config: &str) -> Self {
        Self::start_alone_by(&[], config)
    }

    /// The same through a command that executes its arguments.
    #[must_use]
    pub fn start_alone_by(way: &[&str], config: &str) -> Self {
        let dir = directory();
        std::fs::write(dir.path().join("ringway.toml"), config).unwrap();
        Self::start_with(dir, way, &["--no-keeper"])
    }

    /// The same with the configuration `ringway.toml` of this directory, which it keeps.
    #[must_use]
    pub fn start_in(dir: tempfile::TempDir, way: &[&str]) -> Self {
        Self::start_with(dir, way, &[])
    }

    fn start_with(dir: tempfile::TempDir, way: &[&str], options: &[&str]) -> Self {
        let mut command = match way {
            [] => ringway(),
            [program, arguments @ ..] => {
                let mut command = patient(Command::new(program));
                command.args(arguments).arg(binary());
                command
            }
        };
        command.arg("run").arg("--config").arg(dir.path().join("ringway.toml"));
        command.arg("--runtime-dir").arg(dir.path().join("run")).args(options);
        let mut child = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let complaints = lines(child.stderr.take().unwrap());
        let lines = lines(child.stdout.take().unwrap());
        let (is_kept, switch) = (!options.contains(&"--no-keeper"), AtomicU32::new(0));
        let daemon = Self { child, is_kept, switch, lines, complaints, dir };
        assert_eq!(daemon.line(), "ready");
        daemon
    }

    /// The next line of its stdout.
    #[must_use]
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|why| {
            let complaints: Vec<_> = self.complaints.try_iter().collect();
            panic!("the daemon should say something: {why}: {}", complaints.join("\n"))
        })
    }

    /// Waits until its stderr has a line that holds this.
    pub fn complains(&self, wanted: &str) {
        while !self.complaint().contains(wanted) {}
    }

    /// Waits for the next line of its stderr.
    pub fn complaint(&self) -> String {
        self.complaints.recv_timeout(PATIENCE).expect("the daemon should complain")
    }

    /// Its runtime directory.
    #[must_use]
    pub fn runtime_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// The names of the files in its runtime directory, in order.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.runtime_dir()).expect("a directory");
        let mut names: Vec<String> =
            files.map(|file| file.expect("a file").file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }

    /// The process id of its keeper. Every way of starting it executes it in the end: the process stays the same.
    #[must_use]
    pub fn keeper(&self) -> u32 {
        self.child.id()
    }

    /// The process id of its switch, which is awaited: a successor's, soon after the switch has died.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        until_some("there is a switch", || self.switch())
    }

    /// The process id of the switch that waits for the death of the present one, which is awaited: it has its closer.
    #[must_use]
    #[track_caller]
    pub fn waiting(&self) -> u32 {
        let has_closer = |process: &u32| !children(*process, "ringway-closer").is_empty();
        until_some("a switch waits for the death of the present one", || {
            children(self.keeper(), "ringway-next").into_iter().find(has_closer)
        })
    }

    fn switch(&self) -> Option<u32> {
        if !self.is_kept {
            return Some(self.keeper());
        }
        let last = self.switch.load(Ordering::Relaxed);
        if last != 0 && child::is_child(last, self.keeper(), SWITCH) {
            return Some(last);
        }
        let switch = children(self.keeper(), SWITCH).first().copied();
        self.switch.store(switch.unwrap_or(0), Ordering::Relaxed);
        switch
    }

    /// Runs `ringway ARGS` against it.
    #[must_use]
    pub fn ringway(&self, args: &[&str]) -> Said {
        ringway().arg("--runtime-dir").arg(self.runtime_dir()).args(args).output().unwrap().into()
    }

    /// Runs `ringway ARGS`, which must succeed; returns its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let said = self.ringway(args);
        assert_eq!(said.code, Some(0), "ringway {args:?}: {}", said.err);
        said.out
    }

    /// What `ringway status --json` writes, read from the control socket itself: starting the command takes more processor time than the
    /// answer.
    pub fn status(&self) -> Value {
        let mut control = UnixStream::connect(self.socket("control.sock")).expect("the daemon listens");
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        control.write_all(b"GET /v1/status HTTP/1.1\r\nhost: ringway\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        control.read_to_end(&mut answer).expect("the daemon answers");
        let header = answer.windows(4).position(|end| end == b"\r\n\r\n").expect("the end of a header");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer[header + 4..]).unwrap()
    }

    /// One port's part of the status; null if there is no such port.
    pub fn port(&self, name: &str) -> Value {
        let status = self.status();
        let ports = status["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Path of a socket, or of another file, in its runtime directory.
    #[must_use]
    pub fn socket(&self, name: &str) -> PathBuf {
        self.runtime_dir().join(name)
    }

    /// Waits until a port has this state.
    #[track_caller]
    pub fn until_state(&self, port: &str, wanted: &str) {
        until(&format!("{port} is {wanted}"), || self.port(port)["state"] == wanted);
    }

    /// Puts another configuration in the file's place, and sends SIGHUP.
    pub fn reload(&self, config: &str) {
        self.write(config);
        self.signal(Signal::HUP);
    }

    /// Puts another configuration in the file's place.
    pub fn write(&self, config: &str) {
        let (new, file) = (self.dir.path().join("new.toml"), self.dir.path().join("ringway.toml"));
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// Attaches a client.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn attach(&self, name: &str) -> Result<Port, AttachError> {
        self.attach_as(name, Shape::default())
    }

    /// Attaches a client with rings of this shape. Asks again if the daemon, or this test, stood still for longer than either waits for the
    /// other.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn attach_as(&self, name: &str, shape: Shape) -> Result<Port, AttachError> {
        let stood_still = |why: &AttachError| match why {
            AttachError::Dialogue(why) => why.kind() == std::io::ErrorKind::TimedOut,
            AttachError::Refused(why) => why.contains("no request came within"),
            _ => false,
        };
        until_some("the daemon answers in time", || {
            Some(Port::attach(self.socket("attach.sock"), name, shape))
                .filter(|asked| !asked.as_ref().is_err_and(stood_still))
        })
    }

    /// Sends a signal: those that end it or have it read its file to the keeper, which passes them on, and all others to the switch.
    pub fn signal(&self, signal: Signal) {
        match signal {
            Signal::TERM | Signal::INT | Signal::HUP => self.child.signal(signal),
            _ => child::signal(self.pid(), signal),
        }
    }

    /// Stops the switch with SIGSTOP, and waits until none of its threads runs any more.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let threads = PathBuf::from(format!("/proc/{}/task", self.pid()));
        let is_stopped = |thread: std::io::Result<DirEntry>| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
            // The state follows the name, which is in parentheses.
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        until("all threads have stopped", || threads.read_dir().unwrap().all(is_stopped));
    }

    /// Ends the switch with SIGKILL, and waits until a successor serves. Returns its process id.
    pub fn kill_switch(&self) -> u32 {
        self.end_switch(Signal::KILL)
    }

    /// The same by any signal of which a process dies.
    pub fn end_switch(&self, signal: Signal) -> u32 {
        let before = self.pid();
        let pid = Pid::from_raw(i32::try_from(before).unwrap()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        until("the switch is dead", || {
            // The process may be dead.
            let _ = pidfd_send_signal(&process, signal);
            !is_running(before)
        });
        let _ = self.status();
        self.pid()
    }

    /// Ends the keeper and the switch with SIGKILL, and waits until both are dead.
    pub fn kill(&self) {
        let switch = self.pid();
        self.child.signal(Signal::KILL);
        until("the daemon is dead", || !is_running(self.keeper()) && !is_running(switch));
    }

    /// Ends it with SIGKILL, keeper and switch; another takes its place in the same directories.
    pub fn replace(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.kill();
        }
        self.child.wait().unwrap();
        let dir = std::mem::replace(&mut self.dir, directory());
        *self = Self::start_in(dir, &[]);
    }

    /// Ends it with SIGTERM and waits.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.end()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The kernel kills the switch after its keeper.
        let switch = if matches!(self.child.try_wait(), Ok(None)) { self.switch() } else { None };
        let _ = self.child.kill();
        let _ = self.child.wait();
        let began = Instant::now();
        while switch.is_some_and(is_running) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
