//! Programs that the demo starts and ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::outcome::{NotDone, Outcome, Stop};
use super::patience::PATIENCE;

/// Interval at which waits look for Ctrl-C.
const LOOK: Duration = Duration::from_millis(20);

/// A running program; ended when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Program {
    /// Starts a program in its own process group: Ctrl-C reaches the demo alone, which then ends its programs in order.
    pub fn start(command: &mut Command) -> Outcome<Program> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |why: &dyn std::fmt::Display| NotDone::Failed(format!("cannot start {name}: {why}"));
        command.process_group(0).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        match (child.stdout.take(), child.stderr.take()) {
            (Some(out), Some(err)) => Ok(Program { name, child, out: lines(out), err: lines(err) }),
            _ => Err(failed(&"it has no output")),
        }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line with `words` on the program's stdout.
    pub fn says(&mut self, words: &str, stop: &Stop) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            stop.check()?;
            match self.out.recv_timeout(LOOK) {
                Ok(line) if line.contains(words) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(NotDone::Failed(format!("{} ended: {}", self.name, self.complaint())));
                }
                _ if Instant::now() >= deadline => {
                    return Err(NotDone::Failed(format!("{} did not say {words:?} within {PATIENCE:?}", self.name)));
                }
                _ => {}
            }
        }
    }

    /// Returns true if the program has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the program's stdout. Call it when the program has ended.
    pub fn output(mut self) -> Outcome<String> {
        let status: Option<ExitStatus> = self.child.wait().ok();
        let text = self.out.iter().collect::<Vec<_>>().join("\n");
        match status {
            Some(status) if status.success() => Ok(text),
            _ => Err(NotDone::Failed(format!("{}: {}", self.name, [self.complaint(), text].join("\n").trim()))),
        }
    }

    /// Returns the program's stderr. Call it when the program has ended: the lines end with its pipe.
    fn complaint(&self) -> String {
        let lines: Vec<String> = std::iter::from_fn(|| self.err.recv_timeout(PATIENCE).ok()).collect();
        lines.join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            // The program may have ended meanwhile. Its process id stays its own until the wait below.
            let _ = kill_process(pid, Signal::TERM);
        }
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Runs a short program to its end.
pub fn finish(command: &mut Command, stop: &Stop) -> Outcome<String> {
    let mut program = Program::start(command)?;
    let deadline = Instant::now() + PATIENCE;
    while !program.has_ended() {
        stop.check()?;
        if Instant::now() >= deadline {
            return Err(NotDone::Failed(format!("{} does not end", program.name)));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    program.output()
}

/// Returns true if the program `name` is installed.
pub fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(usual).any(|dir| Path::new(&dir).join(name).is_file())
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    // The thread ends with the pipe, and so with the program.
    std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
    receive
}
