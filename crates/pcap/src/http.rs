//! The little of HTTP that a request to the administration API needs: one GET, and an answer of known length or in chunks.
//!
//! `ringway-control` has the commands' client. It brings the whole daemon and tokio with it, which would be loaded into every
//! program that uses libpcap.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Longest wait for a part of an answer's head, and for a part of a whole answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Most bytes of an answer's head, and of a line between chunks.
const MAX_HEAD: usize = 16 << 10;
/// Most bytes of an answer that is read whole.
const MAX_BODY: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// The socket cannot be connected to, or breaks.
    Io(io::Error),
    /// The daemon refuses, with a status and its text.
    Refused(u16, String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The body of an answer as it comes.
#[derive(Debug)]
pub struct Body {
    pub stream: UnixStream,
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
pub fn get(socket: &Path, path: &str) -> Result<Body, Failure> {
    let file =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(io::Error::from)?;
    // A blocking connection waits for room in the daemon's queue, for as long as the time limit.
    let mut stream = UnixStream::from(file);
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    connect(&stream, &SocketAddrUnix::new(socket).map_err(io::Error::from)?).map_err(io::Error::from)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: ringway\r\nte: trailers\r\nconnection: close\r\n\r\n")?;
    let mut head = Vec::new();
    let end = loop {
        if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        if head.len() > MAX_HEAD {
            return Err(broken("its answer's head is too long"));
        }
        let mut part = [0; 4096];
        match stream.read(&mut part)? {
            0 => return Err(broken("it closed the connection")),
            count => head.extend_from_slice(&part[..count]),
        }
    };
    let early = head.split_off(end + 4);
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse::<u16>().ok());
    let status = status.ok_or_else(|| broken("its answer is no HTTP"))?;
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let framing = match (field("transfer-encoding"), field("content-length").map(str::parse)) {
        (Some("chunked"), _) => Framing::Chunked(Chunks::default()),
        (None, Some(Ok(length))) => Framing::Length(length),
        _ => return Err(broken("its answer has neither length nor chunks")),
    };
    let mut body = Body { stream, framing, early };
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let bytes = body.whole()?;
    let json: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let text = json.and_then(|json| Some(json.get("error")?.as_str()?.to_owned()));
    Err(Failure::Refused(status, text.unwrap_or_else(|| format!("HTTP status {status}"))))
}

fn broken(what: &str) -> Failure {
    Failure::Io(io::Error::other(format!("the ringway daemon did not answer: {what}")))
}

impl Body {
    /// Reads the whole body.
    pub fn whole(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        while !self.read(&mut bytes, 64 << 10)? {
            if bytes.len() > MAX_BODY {
                return Err(broken("its answer is too long"));
            }
        }
        Ok(bytes)
    }

    /// Appends what one read of the socket brings, `most` bytes or fewer. Returns true at the end of the body.
    pub fn read(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<bool> {
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            return self.framing.take(&early, into);
        }
        if matches!(self.framing, Framing::Length(0)) {
            return Ok(true);
        }
        let mut part = [0; 64 << 10];
        let most = most.min(part.len());
        match self.stream.read(&mut part[..most])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => self.framing.take(&part[..count], into),
        }
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
