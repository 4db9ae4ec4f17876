//! The little of HTTP that requests to the administration API need: one request on a connection, and an answer of known length or in chunks.
//!
//! Nothing here is a point where `pthread_cancel` ends a thread, and a signal of the program ends no wait: libraries in programs that
//! Ringway does not know use it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};

use crate::types::Refusal;

/// Most bytes of an answer's head, and of a line between chunks.
const MAX_HEAD: usize = 16 << 10;
/// Most bytes of an answer that is read whole.
const MAX_BODY: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// The socket cannot be connected to, or breaks.
    Io(io::Error),
    /// There is no whole answer, or one that is not understood.
    Broken(String),
    /// The daemon refuses, with a status and its reason.
    Refused(u16, Refusal),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// An answer whose head was read.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Its body.
    pub body: Body,
    head: String,
}

impl Answer {
    /// Returns a field of the head by its name in small letters.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// The body of an answer as it comes.
#[derive(Debug)]
pub struct Body {
    /// Non-blocking.
    connection: OwnedFd,
    framing: Framing,
    /// What came after the head.
    early: Vec<u8>,
}

/// How a body ends.
#[derive(Debug)]
enum Framing {
    Length(usize),
    Chunked(Chunks),
}

/// Asks for `path`. Returns the body of a successful answer, whose head came within `limit`.
///
/// # Errors
/// See [`Failure`].
pub fn get(socket: &Path, path: &str, limit: Limit) -> Result<Body, Failure> {
    answer(request(socket, "GET", path, None, limit)?, limit)?.successful(limit)
}

/// Sends a request, with a body of JSON. Returns the connection.
///
/// # Errors
/// See [`Failure`].
pub fn request(socket: &Path, method: &str, path: &str, body: Option<&[u8]>, limit: Limit) -> Result<OwnedFd, Failure> {
    let connection = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(socket)?;
    loop {
        // A blocking connection waits for room in the daemon's queue, for as long as the time limit. 0 is no limit.
        let left = limit.left().max(Duration::from_micros(1));
        set_socket_timeout(&connection, Timeout::Send, Some(left))?;
        match connect(&connection, &address) {
            Err(Errno::INTR) if !limit.left().is_zero() => {}
            Err(Errno::AGAIN | Errno::INTR) => return Err(limit.passed()),
            result => break result?,
        }
    }
    ioctl_fionbio(&connection, true)?;
    let body = body.unwrap_or_default();
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: ringway\r\nte: trailers\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    let mut left = &request[..];
    while !left.is_empty() {
        match send(&connection, left, SendFlags::NOSIGNAL) {
            Ok(count) => left = &left[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(&connection, PollFlags::OUT, limit)?,
            // It may have answered before it closed.
            Err(Errno::PIPE | Errno::CONNRESET) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(connection)
}

/// Reads the head of an answer.
///
/// # Errors
/// See [`Failure`].
pub fn answer(connection: OwnedFd, limit: Limit) -> Result<Answer, Failure> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let early = bytes.split_off(end + 4);
            let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
            let (status, framing) = read_head(&head)?;
            return Ok(Answer { status, head, body: Body { connection, framing, early } });
        }
        if bytes.len() > MAX_HEAD {
            return Err(broken("its answer's head is too long"));
        }
        let mut part = [0; 4096];
        match receive(&connection, &mut part, Some(limit))? {
            0 => return Err(broken("it closed the connection")),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

impl Answer {
    /// Returns the body of a successful answer.
    ///
    /// # Errors
    /// [`Failure::Refused`], or the reason was not read within `limit`.
    pub fn successful(mut self, limit: Limit) -> Result<Body, Failure> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let refusal = serde_json::from_slice(&self.body.whole(limit)?);
        let unknown = |_| Refusal { error: format!("HTTP status {}", self.status), mistakes: Vec::new() };
        Err(Failure::Refused(self.status, refusal.unwrap_or_else(unknown)))
    }
}

/// Reads a head in small letters: the status, and how the body ends.
fn read_head(head: &str) -> Result<(u16, Framing), Failure> {
    let status = head.lines().next().and_then(|line| line.split(' ').nth(1)?.parse::<u16>().ok());
    let status = status.ok_or_else(|| broken("its answer is no HTTP"))?;
    match (field(head, "transfer-encoding"), field(head, "content-length").map(str::parse)) {
        (Some("chunked"), _) => Ok((status, Framing::Chunked(Chunks::default()))),
        (None, Some(Ok(length))) => Ok((status, Framing::Length(length))),
        _ => Err(broken("its answer has neither length nor chunks")),
    }
}

/// Returns a field of a head, or of trailers.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

fn broken(what: &str) -> Failure {
    Failure::Broken(what.to_owned())
}

/// Reads from a non-blocking socket. Returns the number of bytes; 0 at the end of the connection. Waits for the time of `limit` at
/// most, or not at all.
fn receive(connection: &OwnedFd, into: &mut [u8], limit: Option<Limit>) -> Result<usize, Failure> {
    loop {
        match (rustix::io::read(connection, &mut *into), limit) {
            (Ok(count), _) => return Ok(count),
            (Err(Errno::INTR), _) => {}
            (Err(Errno::AGAIN), Some(limit)) => wait(connection, PollFlags::IN, limit)?,
            (Err(error), _) => return Err(error.into()),
        }
    }
}

/// Waits until the connection is ready, or a signal comes.
fn wait(connection: &OwnedFd, events: PollFlags, limit: Limit) -> Result<(), Failure> {
    let left = limit.left();
    if left.is_zero() {
        return Err(limit.passed());
    }
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(connection, events)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A time limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    end: Instant,
    length: Duration,
}

impl Limit {
    /// A limit that begins now.
    pub fn begin(length: Duration) -> Limit {
        Limit { end: Instant::now() + length, length }
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn passed(&self) -> Failure {
        broken(&format!("no answer within {} s", self.length.as_secs_f64()))
    }
}

impl Body {
    /// Reads the whole body within `limit`.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn whole(&mut self, limit: Limit) -> Result<Vec<u8>, Failure> {
        let limit = Some(limit);
        let mut bytes = Vec::new();
        while !self.take(&mut bytes, limit)? {
            if bytes.len() > MAX_BODY {
                return Err(broken("its answer is too long"));
            }
        }
        Ok(bytes)
    }

    /// Appends what one read of the socket brings, without a wait: `WouldBlock` if there is nothing. Returns true at the end of the
    /// body.
    ///
    /// # Errors
    /// The connection broke, or what it brings is not understood.
    pub fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        self.take(into, None).map_err(|failure| match failure {
            Failure::Io(error) => error,
            Failure::Broken(text) | Failure::Refused(_, Refusal { error: text, .. }) => io::Error::other(text),
        })
    }

    /// Returns a trailer of a body that has ended, by its name in small letters.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        match &self.framing {
            Framing::Length(_) => None,
            Framing::Chunked(chunks) => field(&chunks.trailers, name),
        }
    }

    fn take(&mut self, into: &mut Vec<u8>, limit: Option<Limit>) -> Result<bool, Failure> {
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            return Ok(self.framing.take(&early, into)?);
        }
        if matches!(self.framing, Framing::Length(0)) {
            return Ok(true);
        }
        let mut part = [0; 64 << 10];
        match receive(&self.connection, &mut part, limit)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => Ok(self.framing.take(&part[..count], into)?),
        }
    }
}

impl AsFd for Body {
    /// The connection, which is readable when more has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Framing {
    /// Appends the body's bytes of a part of the connection. Returns true at the end of the body.
    fn take(&mut self, part: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
        match self {
            Framing::Length(left) => {
                let count = part.len().min(*left);
                into.extend_from_slice(&part[..count]);
                *left -= count;
                Ok(*left == 0)
            }
            Framing::Chunked(chunks) => chunks.take(part, into),
        }
    }
}

/// A decoder of chunks.
#[derive(Debug, Default)]
struct Chunks {
    /// Bytes of the present chunk that have not come.
    left: usize,
    /// The beginning of a line: a chunk's size, the end of a chunk, or a trailer.
    line: Vec<u8>,
    place: Place,
    /// What follows the last chunk, in small letters.
    trailers: String,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum Place {
    #[default]
    Size,
    Data,
    DataEnd,
    Trailers,
}

impl Chunks {
    fn take(&mut self, mut part: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
        while !part.is_empty() {
            if self.place == Place::Data {
                let (data, rest) = part.split_at(part.len().min(self.left));
                into.extend_from_slice(data);
                self.left -= data.len();
                part = rest;
                if self.left == 0 {
                    self.place = Place::DataEnd;
                }
                continue;
            }
            let (line, rest) = match part.iter().position(|&byte| byte == b'\n') {
                Some(end) => (&part[..=end], &part[end + 1..]),
                None => (part, &part[part.len()..]),
            };
            self.line.extend_from_slice(line);
            part = rest;
            if self.line.len() > MAX_HEAD {
                return Err(io::Error::other("a line between chunks is too long"));
            }
            if self.line.last() == Some(&b'\n') && self.end_line()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes a whole line. Returns true if it is the last.
    fn end_line(&mut self) -> io::Result<bool> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(io::Error::other)?.trim_end();
        match self.place {
            Place::Size => {
                let digits = line.split(';').next().unwrap_or_default();
                let size = usize::from_str_radix(digits.trim(), 16).map_err(io::Error::other)?;
                self.left = size;
                self.place = if size == 0 { Place::Trailers } else { Place::Data };
            }
            Place::DataEnd if line.is_empty() => self.place = Place::Size,
            Place::Trailers if line.is_empty() => return Ok(true),
            Place::Trailers if self.trailers.len() + line.len() > MAX_HEAD => {
                return Err(io::Error::other("its trailers are too long"));
            }
            Place::Trailers => {
                self.trailers.push_str(&line.to_ascii_lowercase());
                self.trailers.push('\n');
            }
            Place::Data | Place::DataEnd => return Err(io::Error::other("a chunk is longer than its size")),
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_however_they_are_cut() {
        let sent = b"5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\nringway-lost: 3\r\n\r\n";
        for size in 1..=sent.len() {
            let (mut chunks, mut joined, mut ended) = (Chunks::default(), Vec::new(), false);
            for part in sent.chunks(size) {
                assert!(!ended, "an end before the end");
                ended = chunks.take(part, &mut joined).unwrap();
            }
            assert!(ended);
            assert_eq!(joined, b"hello 0123456789");
            assert_eq!(field(&chunks.trailers, "ringway-lost"), Some("3"));
        }
    }

    #[test]
    fn chunks_with_mistakes_are_refused() {
        let trailers = [b"0\r\n", &b"a: b\r\n".repeat(MAX_HEAD / 4)[..]].concat();
        for sent in
            [&trailers[..], b"x\r\n", b"2\r\nabc\r\n", b"-1\r\n", b"fffffffffffffffff\r\n", &[b'1'; MAX_HEAD + 1]]
        {
            assert!(Chunks::default().take(sent, &mut Vec::new()).is_err(), "{:?}", String::from_utf8_lossy(sent));
        }
    }
}
