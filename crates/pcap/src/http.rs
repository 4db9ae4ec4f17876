//! The little of HTTP that a request to the administration API needs: one GET, and an answer of known length or in chunks.
//!
//! `ringway-control` has the commands' client. It brings the whole daemon and tokio with it, which would be loaded into every
//! program that uses libpcap.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};

/// Longest wait for an answer's head, from the beginning of the connection.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for the rest of an answer that is read whole.
const BODY_WITHIN: Duration = Duration::from_secs(5);
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
    /// The daemon refuses, with a status and its text.
    Refused(u16, String),
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

/// Asks for `path`. Returns the body of a successful answer.
///
/// Nothing here is a point where `pthread_cancel` ends a thread, and a signal of the program ends no wait.
pub fn get(socket: &Path, path: &str) -> Result<Body, Failure> {
    let limit = Limit::begin(HEAD_WITHIN);
    let connection = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(socket)?;
    loop {
        // A blocking connection waits for room in the daemon's queue, for as long as the time limit. 0 is no limit.
        let left = limit.end.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        set_socket_timeout(&connection, Timeout::Send, Some(left))?;
        match connect(&connection, &address) {
            Err(Errno::INTR) if Instant::now() < limit.end => {}
            Err(Errno::AGAIN | Errno::INTR) => return Err(limit.passed()),
            result => break result?,
        }
    }
    ioctl_fionbio(&connection, true)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: ringway\r\nte: trailers\r\nconnection: close\r\n\r\n");
    // A new connection has room for it.
    if send(&connection, request.as_bytes(), SendFlags::NOSIGNAL)? < request.len() {
        return Err(broken("it takes no request"));
    }
    answer(connection, limit)
}

/// Reads the head of an answer. Returns the body of a successful one.
pub fn answer(connection: OwnedFd, limit: Limit) -> Result<Body, Failure> {
    let mut bytes = Vec::new();
    let (status, mut body) = loop {
        if let Some(end) = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let early = bytes.split_off(end + 4);
            let (status, framing) = head(&bytes)?;
            break (status, Body { connection, framing, early });
        }
        if bytes.len() > MAX_HEAD {
            return Err(broken("its answer's head is too long"));
        }
        let mut part = [0; 4096];
        match receive(&connection, &mut part, Some(limit))? {
            0 => return Err(broken("it closed the connection")),
            count => bytes.extend_from_slice(&part[..count]),
        }
    };
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let bytes = body.whole()?;
    let json: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let text = json.and_then(|json| Some(json.get("error")?.as_str()?.to_owned()));
    Err(Failure::Refused(status, text.unwrap_or_else(|| format!("HTTP status {status}"))))
}

/// Reads a head: the status, and how the body ends.
fn head(bytes: &[u8]) -> Result<(u16, Framing), Failure> {
    let head = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let status = head.lines().next().and_then(|line| line.split(' ').nth(1)?.parse::<u16>().ok());
    let status = status.ok_or_else(|| broken("its answer is no HTTP"))?;
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    match (field("transfer-encoding"), field("content-length").map(str::parse)) {
        (Some("chunked"), _) => Ok((status, Framing::Chunked(Chunks::default()))),
        (None, Some(Ok(length))) => Ok((status, Framing::Length(length))),
        _ => Err(broken("its answer has neither length nor chunks")),
    }
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
            (Err(Errno::AGAIN), Some(limit)) => {
                let left = limit.end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(limit.passed());
                }
                let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
                match poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&left)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
}

/// A time limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    end: Instant,
    length: Duration,
}

impl Limit {
    /// Begins now.
    pub fn begin(length: Duration) -> Limit {
        Limit { end: Instant::now() + length, length }
    }

    fn passed(&self) -> Failure {
        broken(&format!("no answer within {} s", self.length.as_secs()))
    }
}

impl Body {
    /// Reads the whole body.
    pub fn whole(&mut self) -> Result<Vec<u8>, Failure> {
        let limit = Some(Limit::begin(BODY_WITHIN));
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
    pub fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        self.take(into, None).map_err(|failure| match failure {
            Failure::Io(error) => error,
            Failure::Broken(text) | Failure::Refused(_, text) => io::Error::other(text),
        })
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
            Place::Trailers => return Ok(line.is_empty()),
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
        }
    }

    #[test]
    fn chunks_with_mistakes_are_refused() {
        for sent in [&b"x\r\n"[..], b"2\r\nabc\r\n", b"-1\r\n", b"fffffffffffffffff\r\n", &[b'1'; MAX_HEAD + 1]] {
            assert!(Chunks::default().take(sent, &mut Vec::new()).is_err(), "{:?}", String::from_utf8_lossy(sent));
        }
    }
}
