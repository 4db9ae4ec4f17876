//! Runs the compiler, within a time, and reads what it writes.
//!
//! The process is held by a descriptor (pidfd), never by its number: the number of a process that has been waited for can be another's.
//! Its three pipes are served together, so that neither side waits for the other.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use crate::limits::MACHINE_CODE_MAX;

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

/// Runs a compiler for a module. It has ended when this returns.
///
/// # Errors
/// It cannot be started or waited for.
pub(super) fn run(program: &Path, module: &[u8], within: Duration, stop: &AtomicBool) -> io::Result<Output> {
    let deadline = Instant::now() + within;
    let mut process = Process::start(program)?;
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

/// A running compiler; ended when dropped.
struct Process {
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
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
        let process =
            Process { pidfd, stdin: child.stdin.take(), stdout: child.stdout.take(), stderr: child.stderr.take() };
        process.stdin.as_ref().map_or(Ok(()), |pipe| ioctl_fionbio(pipe, true))?;
        process.stdout.as_ref().map_or(Ok(()), |pipe| ioctl_fionbio(pipe, true))?;
        process.stderr.as_ref().map_or(Ok(()), |pipe| ioctl_fionbio(pipe, true))?;
        Ok(process)
    }

    /// Waits until there is something to do, or for this long. Returns true if it has ended.
    fn wait(&self, most: Duration) -> io::Result<bool> {
        let mut places = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
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
    fn status(&self) -> io::Result<ExitStatus> {
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
        // The form that wait(2) gives: the exit code in the second byte, or the signal in the first.
        let code = status.as_ref().and_then(|status| status.exit_status()).map(|code| code << 8);
        let raw = code.or_else(|| status.and_then(|status| status.terminating_signal()));
        raw.map(ExitStatus::from_raw).ok_or_else(|| io::Error::other("its end cannot be seen"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has ended and was waited for.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Writes what there is room for. Closes the pipe after the last byte, or if the compiler does not read any more: its end says why.
fn write(pipe: &mut Option<ChildStdin>, unwritten: &mut &[u8]) {
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
    use super::*;

    const LONG: Duration = Duration::from_secs(1 << 20);

    /// Runs a shell, whose script is the module.
    fn shell(script: &str, within: Duration, stop: bool) -> Output {
        run(Path::new("/bin/sh"), script.as_bytes(), within, &AtomicBool::new(stop)).expect("a shell")
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
