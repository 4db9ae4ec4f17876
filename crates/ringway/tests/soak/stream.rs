//! The peer of a stream port, as QEMU's `-netdev stream` is: each frame after its length in four bytes, in network byte order.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ringway_traffic::Endpoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Most bytes that wait for the socket.
const WAITING_MOST: usize = 256 << 10;

/// A connection.
pub struct StreamEndpoint {
    socket: UnixStream,
    waiting: Vec<u8>,
    come: Vec<u8>,
    ended: Option<String>,
}

impl StreamEndpoint {
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, waiting: Vec::new(), come: Vec::new(), ended: None })
    }

    fn failed(&mut self, why: &io::Error) {
        if !matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
            self.ended.get_or_insert_with(|| why.to_string());
        }
    }
}

impl Endpoint for StreamEndpoint {
    fn tx_room(&mut self) -> usize {
        if self.waiting.len() < WAITING_MOST { 16 } else { 0 }
    }

    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.waiting.len() >= WAITING_MOST || self.ended.is_some() {
            return false;
        }
        self.waiting.extend(u32::try_from(len).expect("a frame").to_be_bytes());
        let at = self.waiting.len();
        self.waiting.resize(at + len, 0);
        fill(&mut self.waiting[at..]);
        true
    }

    fn tx_flush(&mut self) {
        while !self.waiting.is_empty() && self.ended.is_none() {
            match self.socket.write(&self.waiting) {
                Ok(sent) => _ = self.waiting.drain(..sent),
                Err(why) => return self.failed(&why),
            }
        }
    }

    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut bytes = [0; 65_536];
        match self.socket.read(&mut bytes) {
            Ok(0) => _ = self.ended.get_or_insert_with(|| "the switch has closed the connection".to_owned()),
            Ok(length) => self.come.extend(&bytes[..length]),
            Err(why) => self.failed(&why),
        }
        let (mut at, mut frames) = (0, 0);
        while frames < max {
            let Some(length) = self.come[at..].first_chunk() else { break };
            let length = u32::from_be_bytes(*length) as usize;
            let Some(frame) = self.come.get(at + 4..at + 4 + length) else { break };
            take(frame);
            frames += 1;
            at += 4 + length;
        }
        self.come.drain(..at);
        frames
    }

    fn wait(&mut self, _for_rx: bool, timeout: Duration) -> io::Result<()> {
        if let Some(why) = &self.ended {
            return Err(io::Error::other(why.clone()));
        }
        self.tx_flush();
        let wanted = if self.waiting.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        match poll(&mut [PollFd::new(&self.socket, wanted)], Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }
}
