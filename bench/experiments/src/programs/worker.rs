//! A program that is told how long to work and answers what it did: `programs/turns.h` is its side.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::Program;
use crate::machine;
use crate::network::wait_for_fd;
use crate::patience::PATIENCE;

/// A running program. Between windows it waits for its standard input.
pub(super) struct Worker {
    program: Program,
    /// What it has said beyond the last line.
    said: Vec<u8>,
}

/// What a program did in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    /// Frames that were delivered.
    pub(super) frames: u64,
    /// Duration.
    pub(super) seconds: f64,
}

impl Worker {
    /// Starts a program on one core, and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or ends. The message has what it wrote to its standard error.
    pub(super) fn start(command: &mut Command, core: usize) -> io::Result<Worker> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut worker = Worker { program: Program::start_on(&[core], command)?, said: Vec::new() };
        match worker.line(PATIENCE)?.as_str() {
            "ready" => Ok(worker),
            other => Err(io::Error::other(format!("the program says {other:?} instead of \"ready\""))),
        }
    }

    /// Lets the program work for `span`.
    ///
    /// # Errors
    /// It has ended, with this on its standard error, or does not answer.
    pub(super) fn work(&mut self, span: Duration) -> io::Result<Work> {
        if let Some(input) = &mut self.program.child().stdin {
            // If it has ended, the missing answer tells why.
            let _ = writeln!(input, "{}", span.as_micros());
        }
        let line = self.line(span + PATIENCE)?;
        parse(&line).ok_or_else(|| io::Error::other(format!("the program says {line:?} instead of two numbers")))
    }

    /// Returns how often its first thread was preempted so far.
    pub(super) fn times_preempted(&mut self) -> u64 {
        machine::times_preempted_of(self.program.child().id())
    }

    /// Returns the next line of its standard output.
    fn line(&mut self, patience: Duration) -> io::Result<String> {
        let start = Instant::now();
        loop {
            if let Some(end) = self.said.iter().position(|&byte| byte == b'\n') {
                let line = self.said.drain(..=end).collect::<Vec<u8>>();
                return Ok(String::from_utf8_lossy(&line).trim().to_owned());
            }
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the program does not answer"));
            }
            let Some(stdout) = self.program.child().stdout.as_mut() else { return Err(self.end()) };
            wait_for_fd(stdout.as_fd(), true, left.min(Duration::from_secs(1)))?;
            if !is_readable(stdout)? {
                continue;
            }
            let mut bytes = [0; 256];
            match stdout.read(&mut bytes)? {
                0 => return Err(self.end()),
                len => self.said.extend_from_slice(&bytes[..len]),
            }
        }
    }

    /// Says how the program ended.
    fn end(&mut self) -> io::Error {
        let mut words = String::new();
        if let Some(mut stderr) = self.program.child().stderr.take() {
            let _ = stderr.read_to_string(&mut words);
        }
        let last = words.trim().lines().last().unwrap_or("without a word");
        io::Error::other(format!("the program ended: {last}"))
    }
}

/// Returns true if a read would not wait.
fn is_readable(pipe: &impl std::os::fd::AsFd) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

/// Reads "FRAMES NANOSECONDS".
fn parse(line: &str) -> Option<Work> {
    let (frames, nanoseconds) = line.split_once(' ')?;
    let nanoseconds: u64 = nanoseconds.parse().ok()?;
    (nanoseconds > 0).then_some(Work { frames: frames.parse().ok()?, seconds: nanoseconds as f64 / 1e9 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> io::Result<Worker> {
        let core = crate::placement::Cores::choose().map_or(0, |cores| cores.generator);
        Worker::start(Command::new("sh").args(["-c", script]), core)
    }

    #[test]
    fn a_program_works_when_it_is_told_and_answers_what_it_did() {
        let mut worker = shell("echo ready; while read us; do echo $((us * 2)) $((us * 1000)); done").unwrap();
        for milliseconds in [3, 40] {
            let work = worker.work(Duration::from_millis(milliseconds)).unwrap();
            let expected = Work { frames: milliseconds * 2000, seconds: milliseconds as f64 / 1e3 };
            assert_eq!(work, expected);
        }
    }

    #[test]
    fn a_program_that_ends_is_reported_with_its_last_words() {
        let said = shell("echo one >&2; echo no device >&2; exit 1").err().unwrap().to_string();
        assert!(said.contains("ended: no device"), "{said}");
        let mut worker = shell("echo ready; read us; echo out of room >&2").unwrap();
        let said = worker.work(Duration::from_millis(1)).unwrap_err().to_string();
        assert!(said.contains("out of room"), "{said}");
    }

    #[test]
    fn an_answer_that_is_none_is_refused() {
        for line in ["", "1", "a 1", "1 b", "1 0", "-1 5"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
        assert!(shell("echo hello; read us").err().unwrap().to_string().contains("\"hello\""));
    }
}
