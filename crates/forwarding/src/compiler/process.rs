//! Runs the compiler, within a time, and reads what it writes.
//!
//! The process is held by a descriptor (pidfd), never by its number: the number of a process that has been waited for can be another's.
//! Its three pipes are served together, so that neither side waits for the other.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ringway_keeper::opener::{Ask, Opener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use crate::limits::MACHINE_CODE_MAX;

/// Longest wait for the opener to start a compiler.
const STARTED_WITHIN: Duration = Duration::from_secs(5);
/// Most bytes of the compiler's messages that are kept.
const MESSAGES_MAX: usize = 4096;
/// Most bytes that are read at once.
const STEP: usize = 64 << 10;
/// How often a wait looks whether it is to stop.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a run ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself.
    Status(ExitStatus),
    /// It wrote more than [`MACHINE_CODE_MAX`] bytes, and was ended.
    TooMuchCode,
    /// It took too long, and was ended.
    TooLong,
    /// Nobody waits for it any more: it was ended.
    Stopped,
}

/// What a run wrote, and how it ended.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) code: Vec<u8>,
    pub(super) messages: Vec<u8>,
    pub(super) end: End,
}

/// Runs a compiler for a module: this program, or by the opener the one that is installed. It has ended when this returns, or soon after.
///
/// # Errors
/// It cannot be started or waited for.
pub(super) fn run(
    program: &Path,
    opener: &Opener,
    module: &[u8],
    within: Duration,
    stop: &AtomicBool,
) -> io::Result<Output> {
    let deadline = Instant::now() + within;
    let mut process = match opener.ask_done(&Ask::Compile, &[], STARTED_WITHIN) {
        None => Process::start(program)?,
        Some(files) => Process::started(files?)?,
    };
    let (mut unwritten, mut code, mut messages) = (module, Vec::new(), Vec::new());
    let end = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if stop.load(Ordering::Relaxed) {
            break End::Stopped;
        }
        if left.is_zero() {
            break End::TooLong;
        }
        let has_ended = process.wait(left.min(LOOK_EVERY))?;
        write(&mut process.stdin, &mut unwritten);
        let read = read(&mut process.stdout, &mut code, MACHINE_CODE_MAX + 1)?
            + read(&mut process.stderr, &mut messages, MESSAGES_MAX)?;
        if code.len() > MACHINE_CODE_MAX {
            break End::TooMuchCode;
        }
        // What it wrote before its end is in the pipes. Others may hold their ends open for longer.
        if has_ended && read == 0 {
            break End::Status(process.status()?);
        }
    };
    Ok(Output { code, messages, end })
}

/// Most compilers that run for a switch at a time.
const FOR_SWITCH_MOST: usize = 8;

/// Starts a compiler for the switch, in the opener.
pub(super) fn start_for_switch(program: &Path) -> io::Result<Vec<OwnedFd>> {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    let running = Counted::one_of(&RUNNING, FOR_SWITCH_MOST)?;
    let (reads, ended) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (said, started) = channel();
    let program = program.to_owned();
    // It ends with the thread that has started it: this one, which stays as long as it runs.
    let watch = move || {
        let _running = running;
        let mut process = match Process::start(&program) {
            Ok(process) => process,
            Err(why) => {
                let _ = said.send(Err(why));
                return;
            }
        };
        let _ = said.send(Ok([process.stdin.take(), process.stdout.take(), process.stderr.take()]));
        let pidfd = process.ended.as_fd();
        let mut ends = [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&ended, PollFlags::empty())];
        while let Ok(0) | Err(Errno::INTR) = poll(&mut ends, None) {}
        // Nobody reads it any more: then the compiler is ended.
        if ends[1].revents().is_empty()
            && let Ok(status) = process.status()
        {
            let _ = rustix::io::write(&ended, &status.into_raw().to_ne_bytes());
        }
    };
    std::thread::Builder::new().name("compiler".to_owned()).spawn(watch)?;
    let pipes = started.recv().unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))?;
    Ok(pipes.into_iter().flatten().map(OwnedFd::from).chain([reads]).collect())
}

/// One of at most so many.
struct Counted(&'static AtomicUsize);

impl Counted {
    fn one_of(all: &'static AtomicUsize, most: usize) -> io::Result<Self> {
        let one = Self(all);
        if all.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(ErrorKind::ResourceBusy.into());
        }
        Ok(one)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running compiler; ended when dropped.
struct Process {
    ended: Ended,
    stdin: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
}

/// Readable when the process has ended.
enum Ended {
    /// A child of this process.
    Child(OwnedFd),
    /// A child of the opener, which says the raw status.
    Told(File),
}

impl AsFd for Ended {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Child(pidfd) => pidfd.as_fd(),
            Self::Told(pipe) => pipe.as_fd(),
        }
    }
}

impl Process {
    fn start(program: &Path) -> io::Result<Process> {
        keep_ended_children()?;
        let mut command = Command::new(program);
        command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pidfd = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                // Nobody has waited for it: the number is its own.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.into());
            }
        };
        let [stdin, stdout, stderr] = [
            child.stdin.take().map(OwnedFd::from),
            child.stdout.take().map(OwnedFd::from),
            child.stderr.take().map(OwnedFd::from),
        ]
        .map(|pipe| pipe.map(File::from));
        for pipe in [&stdin, &stdout, &stderr].into_iter().flatten() {
            ioctl_fionbio(pipe, true)?;
        }
        Ok(Process { ended: Ended::Child(pidfd), stdin, stdout, stderr })
    }

    /// The process that the opener has started.
    fn started(files: Vec<OwnedFd>) -> io::Result<Process> {
        let files = <[OwnedFd; 4]>::try_from(files).map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
        let [stdin, stdout, stderr, ended] = files.map(File::from);
        Ok(Process { ended: Ended::Told(ended), stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr) })
    }

    /// Waits until there is something to do, or for this long. Returns true if it has ended.
    fn wait(&self, most: Duration) -> io::Result<bool> {
        let mut places = vec![PollFd::new(&self.ended, PollFlags::IN)];
        places.extend(self.stdin.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        places.extend(self.stdout.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        places.extend(self.stderr.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let most = Timespec::try_from(most).map_err(io::Error::other)?;
        match poll(&mut places, Some(&most)) {
            Ok(_) | Err(Errno::INTR) => Ok(!places[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }

    /// How it ended, once it has.
    fn status(&mut self) -> io::Result<ExitStatus> {
        let unseen = || io::Error::other("its end cannot be seen");
        let pidfd = match &mut self.ended {
            Ended::Told(pipe) => {
                let mut raw = [0; 4];
                pipe.read_exact(&mut raw).map_err(|_| unseen())?;
                return Ok(ExitStatus::from_raw(i32::from_ne_bytes(raw)));
            }
            Ended::Child(pidfd) => pidfd,
        };
        let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
        // The form that wait(2) gives: the exit code in the second byte, or the signal in the first.
        let code = status.as_ref().and_then(|status| status.exit_status()).map(|code| code << 8);
        let raw = code.or_else(|| status.and_then(|status| status.terminating_signal()));
        raw.map(ExitStatus::from_raw).ok_or_else(unseen)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Ended::Child(pidfd) = &self.ended else { return };
        // Both fail if it has ended and was waited for.
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Writes what there is room for. Closes the pipe after the last byte, or if the compiler does not read any more: its end says why.
fn write(pipe: &mut Option<File>, unwritten: &mut &[u8]) {
    let Some(open) = pipe else { return };
    match open.write(unwritten) {
        Ok(written) => *unwritten = &unwritten[written..],
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
        Err(_) => *unwritten = &[],
    }
    if unwritten.is_empty() {
        *pipe = None;
    }
}

/// Reads a part of what there is, and keeps at most `most` bytes in all. Closes the pipe at its end. Returns the number of bytes read.
fn read(pipe: &mut Option<impl Read>, kept: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let Some(open) = pipe else { return Ok(0) };
    let mut bytes = [0; STEP];
    match open.read(&mut bytes) {
        Ok(0) => *pipe = None,
        Ok(read) => {
            kept.extend_from_slice(&bytes[..read.min(most - kept.len())]);
            return Ok(read);
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(error) => return Err(error),
    }
    Ok(0)
}

/// Has the kernel keep children that have ended until they are waited for. A parent can leave its children with SIGCHLD ignored (`trap ""
/// CHLD` in a shell): then nobody learns how a child ended, and its number is free for others at once.
#[allow(unsafe_code)]
fn keep_ended_children() -> io::Result<()> {
    // SAFETY: `action` is a plain structure that both calls may read and write. The default action of SIGCHLD does nothing, and no handler
    // is replaced.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(libc::SIGCHLD, std::ptr::null(), &mut action) {
            0 if action.sa_sigaction == libc::SIG_IGN => {
                action.sa_sigaction = libc::SIG_DFL;
                action.sa_flags = 0;
                libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut())
            }
            done => done,
        }
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use ringway_testing::{skip, until, until_some};

    use super::*;

    #[test]
    fn a_compiler_outlives_the_thread_that_was_asked_for_it() {
        let setpriv = "/usr/bin/setpriv";
        if !Path::new(setpriv).exists() {
            skip!("setpriv (util-linux) is not installed");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("compiler");
        // As the compiler does, it ends with its parent.
        let script = format!("#!/bin/sh\nexec {setpriv} --pdeathsig KILL /bin/sh -c 'echo ready; read line; exit 7'\n");
        std::fs::write(&program, script).expect("a file");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let asked = std::thread::spawn(move || {
            // Another test may just have started a process, which has the file open for a moment.
            let files = until_some("it can be executed", || start_for_switch(&program).ok());
            let mut process = Process::started(files).expect("four files");
            let mut said = Vec::new();
            until("it has set itself up", || {
                read(&mut process.stdout, &mut said, 16).expect("a pipe");
                said == b"ready\n"
            });
            process
        });
        let mut process = asked.join().expect("it runs");
        write(&mut process.stdin, &mut &b"go\n"[..]);
        until("it has ended", || process.wait(LOOK_EVERY).expect("a pipe"));
        assert_eq!(process.status().expect("its status").code(), Some(7));
    }

    const LONG: Duration = Duration::from_secs(1 << 20);

    /// Runs a shell, whose script is the module.
    fn shell(script: &str, within: Duration, stop: bool) -> Output {
        run(Path::new("/bin/sh"), &Opener::default(), script.as_bytes(), within, &AtomicBool::new(stop))
            .expect("a shell")
    }

    #[test]
    fn what_a_process_writes_and_how_it_ends_is_seen() {
        let output = shell("echo code; echo message >&2; exit 7", LONG, false);
        assert_eq!((&output.code[..], &output.messages[..]), (&b"code\n"[..], &b"message\n"[..]));
        assert!(matches!(output.end, End::Status(status) if status.code() == Some(7)));
    }

    #[test]
    fn a_process_that_takes_too_long_is_ended() {
        for script in
            ["exec sleep 1000", "kill -STOP $$", "exec <&- >&- 2>&-; exec sleep 1000", "while :; do echo; done >&2"]
        {
            assert!(matches!(shell(script, Duration::from_millis(100), false).end, End::TooLong), "{script}");
        }
        assert!(matches!(shell("exec sleep 1000", LONG, true).end, End::Stopped));
    }

    #[test]
    fn a_process_that_writes_too_much_is_ended() {
        let output = shell("exec yes", LONG, false);
        assert!(matches!(output.end, End::TooMuchCode), "{:?}", output.end);
        assert_eq!(output.code.len(), MACHINE_CODE_MAX + 1);
    }
}
