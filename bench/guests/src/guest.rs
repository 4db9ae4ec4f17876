//! A running guest.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::console::{Channel, Console, Output};
use crate::error::{Error, at};
use crate::nic::Nic;
use crate::qmp::Qmp;

/// Longest wait for anything that a guest or QEMU does. It ends only what hangs: a guest may be without a processor for minutes.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Pause between two tries of a condition in a guest, which leaves the guest's processor to other programs.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of the logs that an error shows.
const TAIL: usize = 3000;
/// The number of the next job in any guest: a guest that has moved still has its jobs.
static JOBS: AtomicU64 = AtomicU64::new(0);

/// A virtual machine, which ends when it is dropped. Threads can share it: its commands run one at a time.
#[derive(Debug)]
pub struct Guest {
    name: String,
    child: Child,
    pidfd: OwnedFd,
    dir: TempDir,
    console: Mutex<Link<Console>>,
    qmp: Mutex<Link<Qmp>>,
}

/// A program that runs in the background of a guest.
#[derive(Debug)]
pub struct Job {
    file: String,
}

/// A socket that QEMU connects to, and the connection once it is used.
#[derive(Debug)]
struct Link<T> {
    listener: UnixListener,
    open: Option<T>,
}

impl<T> Link<T> {
    fn new(listener: UnixListener) -> Mutex<Link<T>> {
        Mutex::new(Link { listener, open: None })
    }

    fn open(
        &mut self,
        pidfd: &OwnedFd,
        deadline: Instant,
        with: impl FnOnce(Channel) -> io::Result<T>,
    ) -> io::Result<&mut T> {
        let open = match self.open.take() {
            Some(open) => open,
            None => with(Channel::accept(&self.listener, pidfd, deadline)?)?,
        };
        Ok(self.open.insert(open))
    }
}

impl Guest {
    pub(crate) fn new(
        name: &str,
        mut child: Child,
        dir: TempDir,
        console: UnixListener,
        qmp: UnixListener,
    ) -> Result<Guest, Error> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL);
        match pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Ok(pidfd) => {
                let (console, qmp) = (Link::new(console), Link::new(qmp));
                Ok(Guest { name: name.to_owned(), child, pidfd, dir, console, qmp })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(at("pidfd")(error.into()))
            }
        }
    }

    /// Waits until the guest accepts commands. Commands do so themselves.
    pub fn ready(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        self.console(deadline, |console| console.ready(deadline)).map_err(|error| self.failed("does not boot", &error))
    }

    /// Runs a shell command of one line that writes text, which must end within [`PATIENCE`].
    pub fn run(&self, command: &str) -> Result<Output, Error> {
        self.run_within(command, PATIENCE)
    }

    /// Runs a shell command of one line, with this time limit.
    pub fn run_within(&self, command: &str, time: Duration) -> Result<Output, Error> {
        self.ready()?;
        let deadline = Instant::now() + time;
        self.console(deadline, |console| {
            let number = console.send(command, deadline)?;
            console.answer(number, deadline)
        })
        .map_err(|error| self.failed(&format!("no answer to {command:?}"), &error))
    }

    /// Runs a command that must succeed. Returns its output.
    pub fn ok(&self, command: &str) -> Result<String, Error> {
        self.ok_within(command, PATIENCE)
    }

    /// Runs a command that must succeed, with this time limit. Returns its output.
    pub fn ok_within(&self, command: &str, time: Duration) -> Result<String, Error> {
        match self.run_within(command, time)? {
            Output { status: 0, text } => Ok(text),
            output => Err(Error::Status { guest: self.name.clone(), command: command.to_owned(), output }),
        }
    }

    /// Repeats the command `condition` until it succeeds.
    pub fn until(&self, condition: &str, time: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + time;
        loop {
            let output = self.run(condition)?;
            if output.status == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Status { guest: self.name.clone(), command: condition.to_owned(), output });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Starts a command in the background.
    pub fn start(&self, command: &str) -> Result<Job, Error> {
        let file = format!("/tmp/job.{}", JOBS.fetch_add(1, Ordering::Relaxed));
        // The end is also written to a pipe, for a shell that waits.
        self.ok(&format!(
            "mkfifo {file}.end; ( ( {command} ) >{file} 2>&1 </dev/null; echo $? >{file}.status; echo >{file}.end ) \
             >/dev/null 2>&1 &"
        ))?;
        Ok(Job { file })
    }

    /// Waits for a command in the background. Returns its result.
    pub fn wait(&self, job: &Job, time: Duration) -> Result<Output, Error> {
        // Sleeps in the guest, but gives way to commands of other threads after a second.
        let ended = "[ -s FILE.status ] || read -t 1 line <>FILE.end; [ -s FILE.status ]";
        self.until(&ended.replace("FILE", &job.file), time)?;
        self.run(&format!("cat {0}; read status <{0}.status; exit $status", job.file))
    }

    /// Returns the output of a command in the background so far.
    pub fn so_far(&self, job: &Job) -> Result<String, Error> {
        self.ok(&format!("cat {}", job.file))
    }

    /// Makes the guest reboot itself. The next command waits until the guest is up again.
    pub fn reboot(&self) -> Result<(), Error> {
        self.reboot_by("reboot -f")
    }

    /// Runs a command that reboots the guest. The next command waits until the guest is up again.
    pub fn reboot_by(&self, command: &str) -> Result<(), Error> {
        self.ready()?;
        let deadline = Instant::now() + PATIENCE;
        self.console(deadline, |console| {
            console.send(command, deadline)?;
            console.rebooted();
            Ok(())
        })
        .map_err(|error| self.failed("cannot be told to reboot", &error))
    }

    /// Resets the guest from outside. The next command waits until the guest is up again.
    pub fn reset(&self) -> Result<(), Error> {
        self.ready()?;
        self.qmp("system_reset", json!({}))?;
        let deadline = Instant::now() + PATIENCE;
        self.console(deadline, |console| {
            console.rebooted();
            Ok(())
        })
        .map_err(|error| self.failed("has no console", &error))
    }

    /// Executes a QMP command. Returns its result.
    pub fn qmp(&self, command: &str, arguments: Value) -> Result<Value, Error> {
        let deadline = Instant::now() + PATIENCE;
        self.monitor(deadline, |qmp| qmp.execute(command, arguments, deadline))
            .map_err(|error| self.failed("QEMU does not obey", &error))
    }

    /// Migrates the running guest to `target`, a QEMU that waits for a migration.
    pub(crate) fn migrate_into(self, target: Guest) -> Result<Guest, Error> {
        let uri = json!({ "uri": format!("unix:{}", target.dir.path().join("move").display()) });
        target.qmp("migrate-incoming", uri.clone())?;
        for side in [&self, &target] {
            let events = json!({ "capabilities": [{ "capability": "events", "state": true }] });
            side.qmp("migrate-set-capabilities", events)?;
        }
        let deadline = Instant::now() + PATIENCE;
        self.monitor(deadline, |qmp| {
            qmp.execute("migrate", uri, deadline)?;
            let ended = |name: &str, data: &Value| {
                let status = data["status"].as_str().filter(|_| name == "MIGRATION")?;
                ["completed", "failed"].contains(&status).then(|| status.to_owned())
            };
            match qmp.event(deadline, ended)?.as_str() {
                "completed" => Ok(()),
                _ => {
                    let why = qmp.execute("query-migrate", json!({}), deadline)?;
                    Err(io::Error::other(format!("migration failed: {why}")))
                }
            }
        })
        .map_err(|error| {
            let error = io::Error::other(format!("{error}; the target: {}", target.said()));
            self.failed("cannot be moved", &error)
        })?;
        // The same shell continues on another connection.
        let mut old = lock(&self.console);
        if let Some(mut console) = old.open.take() {
            let mut new = lock(&target.console);
            let channel = Channel::accept(&new.listener, &target.pidfd, deadline);
            console.moved(channel.map_err(|error| target.failed("has no console", &error))?);
            new.open = Some(console);
        }
        Ok(target)
    }

    /// Unplugs vfio-user NIC number `number` on the hypervisor's side. Returns when the guest has released it.
    pub fn unplug(&self, number: usize) -> Result<(), Error> {
        let device = format!("nic{number}");
        let deadline = Instant::now() + PATIENCE;
        self.monitor(deadline, |qmp| {
            qmp.execute("device_del", json!({ "id": device }), deadline)?;
            qmp.event(deadline, |name, data| (name == "DEVICE_DELETED" && data["device"] == *device).then_some(()))
        })
        .map_err(|error| self.failed(&format!("does not let {device} go"), &error))
    }

    /// Plugs a vfio-user NIC into the port of number `number`, which was unplugged.
    pub fn plug(&self, number: usize, nic: &Nic) -> Result<(), Error> {
        self.qmp("device_add", nic.plug(number)).map(drop)
    }

    /// Returns the process id of QEMU.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops QEMU itself with SIGSTOP, as a debugger does. Returns when the process has stopped.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        // If the process has ended, its status is left for a later wait.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
    }

    /// Continues QEMU after [`Guest::freeze`].
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills QEMU. Pending calls of other threads fail at once.
    pub fn end(&self) {
        self.signal(Signal::KILL);
    }

    /// Kills QEMU with SIGKILL.
    pub fn kill(self) {
        drop(self);
    }

    /// Returns the end of the output of the guest's kernel and of QEMU.
    pub fn said(&self) -> String {
        let tail = |name: &str| {
            let path: PathBuf = self.dir.path().join(name);
            let text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
            let start = text.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
            text[start..].trim().to_owned()
        };
        format!("kernel: {}\nqemu: {}", tail("kernel.log"), tail("qemu.log"))
    }

    fn console<T>(&self, deadline: Instant, with: impl FnOnce(&mut Console) -> io::Result<T>) -> io::Result<T> {
        with(lock(&self.console).open(&self.pidfd, deadline, |channel| Ok(Console::new(channel)))?)
    }

    fn monitor<T>(&self, deadline: Instant, with: impl FnOnce(&mut Qmp) -> io::Result<T>) -> io::Result<T> {
        with(lock(&self.qmp).open(&self.pidfd, deadline, |channel| Qmp::new(channel, deadline))?)
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        let why = match error.kind() {
            ErrorKind::TimedOut => "time is up".to_owned(),
            ErrorKind::UnexpectedEof => format!("QEMU has ended{}", self.ending()),
            _ => error.to_string(),
        };
        Error::Failed { guest: self.name.clone(), what: format!("{what}: {why}"), said: self.said() }
    }

    pub(crate) fn altered(&self, what: String) -> Error {
        Error::Altered { guest: self.name.clone(), what }
    }

    /// Describes how QEMU ended, if it ended by itself.
    fn ending(&self) -> String {
        // Its sockets are closed before its end can be seen.
        let most = Timespec::try_from(PATIENCE).ok();
        let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], most.as_ref());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!(" with status {code}"),
                (_, Some(signal)) => format!(" by signal {signal}"),
                _ => String::new(),
            },
            _ => String::new(),
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails if the process has ended meanwhile.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Locks the mutex even if a thread has panicked: the guest stays usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
