//! Lines to and from QEMU: sockets that QEMU connects to, and the port on which a guest receives commands.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The result of a command in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status of the command.
    pub status: i32,
    /// The text that the command wrote to stdout and stderr.
    pub text: String,
}

/// A connection, read line by line.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    /// Bytes that were received and not returned yet.
    buffer: Vec<u8>,
}

impl Channel {
    /// Waits for the process behind `pidfd` to connect. Fails with an "unexpected end of file" if the process ends
    /// first.
    pub fn accept(listener: &UnixListener, pidfd: &OwnedFd, deadline: Instant) -> io::Result<Channel> {
        wait(&[listener.as_fd(), pidfd.as_fd()], deadline)?;
        if !wait(&[listener.as_fd()], Instant::now())? {
            let gone = wait(&[pidfd.as_fd()], Instant::now())?;
            return Err(if gone { ErrorKind::UnexpectedEof } else { ErrorKind::TimedOut }.into());
        }
        Ok(Channel { stream: listener.accept()?.0, buffer: Vec::new() })
    }

    /// Sends bytes.
    pub fn write(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.stream.set_write_timeout(Some(left(deadline)?))?;
        self.stream.write_all(bytes)
    }

    /// Returns the next line, without its end.
    pub fn line(&mut self, deadline: Instant) -> io::Result<String> {
        self.before(b'\n', deadline).map(|line| line.trim_end().to_owned())
    }

    /// Returns the text before the next byte `end`.
    pub fn before(&mut self, end: u8, deadline: Instant) -> io::Result<String> {
        let mut searched = 0;
        loop {
            if let Some(more) = self.buffer[searched..].iter().position(|&byte| byte == end) {
                let text = self.buffer.drain(..=searched + more).collect::<Vec<u8>>();
                return Ok(String::from_utf8_lossy(&text[..text.len() - 1]).into_owned());
            }
            searched = self.buffer.len();
            self.fill(deadline)?;
        }
    }

    fn fill(&mut self, deadline: Instant) -> io::Result<()> {
        if !wait(&[self.stream.as_fd()], deadline)? {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut part = [0; 4096];
        match self.stream.read(&mut part)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.buffer.extend(&part[..count]);
                Ok(())
            }
        }
    }
}

/// Waits until one of these can be read. Returns false when the deadline has passed.
fn wait(fds: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or(ErrorKind::TimedOut.into())
}

/// The virtio port of a guest's shell (see `init.sh`).
#[derive(Debug)]
pub struct Console {
    channel: Channel,
    /// Number of the next command.
    next: u64,
    /// True if the guest has to say "ready" before the next command.
    booting: bool,
}

impl Console {
    /// The console of a guest that is booting.
    pub fn new(channel: Channel) -> Console {
        Console { channel, next: 1, booting: true }
    }

    /// Continues on another connection, after the guest has migrated.
    pub fn moved(&mut self, channel: Channel) {
        self.channel = channel;
    }

    /// Notes that the guest boots again.
    pub fn rebooted(&mut self) {
        self.booting = true;
    }

    /// Waits for the guest's shell.
    pub fn ready(&mut self, deadline: Instant) -> io::Result<()> {
        while self.booting {
            self.channel.before(0, deadline)?;
            self.booting = self.channel.line(deadline)? != "ready";
        }
        Ok(())
    }

    /// Sends one line to the guest's shell. Returns the number of the command.
    pub fn send(&mut self, command: &str, deadline: Instant) -> io::Result<u64> {
        if command.contains('\n') {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a command is one line"));
        }
        let number = self.next;
        self.next += 1;
        self.channel.write(format!("{number} {command}\n").as_bytes(), deadline)?;
        Ok(number)
    }

    /// Waits for the answer to command `number`.
    pub fn answer(&mut self, number: u64, deadline: Instant) -> io::Result<Output> {
        loop {
            let text = self.channel.before(0, deadline)?;
            let line = self.channel.line(deadline)?;
            if line == "ready" {
                return Err(io::Error::new(ErrorKind::ConnectionReset, "the guest booted anew"));
            }
            let Some((answered, status)) = line.split_once(' ') else { continue };
            // Skips the answers to earlier commands that timed out.
            if answered.parse() == Ok(number) {
                return Ok(Output { status: status.parse().unwrap_or(-1), text });
            }
        }
    }
}
