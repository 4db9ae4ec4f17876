//! A vfio-user client: as much as the driver of one PCI function needs.

use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::VfioUserError;
use super::message::{self, Area, Command, HEADER, Header, RegionReply, flag};
use crate::messages;

/// Most bytes of a reply.
const MOST_BYTES: usize = 4096;
/// Major and minor version of the protocol.
const VERSION: [u16; 2] = [0, 1];
const CAPABILITIES: &[u8] =
    b"{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":1048576,\"write_multiple\":true}}\0";

/// A connection to a server, after the negotiation of the version. Runs one command at a time; register writes may go
/// without an answer.
#[derive(Debug)]
pub struct VfioUser {
    socket: UnixStream,
    path: PathBuf,
    next_id: u16,
    posted: u64,
    answered: u64,
}

/// The payload of an answer, and the descriptors that came with it.
type Answer = (Vec<u8>, Vec<OwnedFd>);

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number of regions.
    pub regions: u32,
    /// Number of kinds of interrupts.
    pub irqs: u32,
    /// True if it can be reset.
    pub resets: bool,
}

/// A region of a device.
#[derive(Debug)]
pub struct Region {
    /// Size in bytes.
    pub size: u64,
    /// The areas that can be mapped.
    pub areas: Vec<Area>,
    /// The file to map, and the offset of the region in it.
    pub file: Option<(OwnedFd, u64)>,
}

impl VfioUser {
    /// Connects to the server at `path`. Each answer must arrive within `within`.
    ///
    /// # Errors
    /// There is no server, or it speaks another protocol.
    pub fn connect(path: &Path, within: Duration) -> Result<VfioUser, VfioUserError> {
        let unreachable = |source| VfioUserError::Unreachable { path: path.to_owned(), source };
        let socket = UnixStream::connect(path).map_err(unreachable)?;
        socket.set_read_timeout(Some(within))?;
        socket.set_write_timeout(Some(within))?;
        let mut client = VfioUser { socket, path: path.to_owned(), next_id: 0, posted: 0, answered: 0 };
        let mut proposal = VERSION.map(u16::to_ne_bytes).concat();
        proposal.extend(CAPABILITIES);
        let (answer, _) = client.ask(Command::VERSION, &proposal, &[])?;
        match answer.first_chunk::<2>().map(|major| u16::from_ne_bytes(*major)) {
            Some(major) if major == VERSION[0] => Ok(client),
            major => Err(client.unexpected(Command::VERSION, &format!("major version {major:?}"))),
        }
    }

    /// Asks what the device offers.
    ///
    /// # Errors
    /// The server refuses, has disconnected, or sends an invalid answer. The methods below have the same errors.
    pub fn device(&mut self) -> Result<DeviceInfo, VfioUserError> {
        let command = Command::DEVICE_GET_INFO;
        let (answer, _) = self.ask(command, &message::words(&[16, 0, 0, 0]), &[])?;
        let word = |at| message::word(&answer, at);
        match (word(4), word(8), word(12)) {
            (Some(flags), Some(regions), Some(irqs)) => Ok(DeviceInfo { regions, irqs, resets: flags & 1 != 0 }),
            _ => Err(self.unexpected(command, "too little")),
        }
    }

    /// Asks for information about a region.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn region(&mut self, index: u32) -> Result<Region, VfioUserError> {
        let command = Command::DEVICE_GET_REGION_INFO;
        let room = (MOST_BYTES - HEADER) as u32;
        let (answer, mut files) = self.ask(command, &message::words(&[room, 0, index, 0, 0, 0, 0, 0]), &[])?;
        let reply = RegionReply::parse(&answer).ok_or_else(|| self.unexpected(command, "nonsense"))?;
        let whole = vec![Area { offset: 0, size: reply.size }];
        let areas = if reply.mappable { reply.areas.unwrap_or(whole) } else { Vec::new() };
        let file = if reply.mappable { files.pop().map(|file| (file, reply.file_offset)) } else { None };
        Ok(Region { size: reply.size, areas, file })
    }

    /// Asks how many interrupts of this kind the device has.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn irqs(&mut self, index: u32) -> Result<u32, VfioUserError> {
        let command = Command::DEVICE_GET_IRQ_INFO;
        let (answer, _) = self.ask(command, &message::words(&[16, 0, index, 0]), &[])?;
        message::word(&answer, 12).ok_or_else(|| self.unexpected(command, "too little"))
    }

    /// Maps `bytes` bytes at `offset` of `file` for the device, readable and writable, at this DMA address.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn map(&mut self, address: u64, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), VfioUserError> {
        const READ_AND_WRITE: u32 = 0b11;
        let mut payload = message::words(&[32, READ_AND_WRITE]);
        payload.extend([offset, address, bytes].map(u64::to_ne_bytes).concat());
        self.ask(Command::DMA_MAP, &payload, &[file]).map(drop)
    }

    /// Unmaps memory that [`map`](VfioUser::map) mapped.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), VfioUserError> {
        let mut payload = message::words(&[24, 0]);
        payload.extend([address, bytes].map(u64::to_ne_bytes).concat());
        self.ask(Command::DMA_UNMAP, &payload, &[]).map(drop)
    }

    /// Sets the eventfds to write at the interrupts `start`, `start + 1`, ... of a kind.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn trigger(&mut self, index: u32, start: u32, bells: &[BorrowedFd<'_>]) -> Result<(), VfioUserError> {
        const EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
        let payload = message::words(&[20, EVENTFD_TRIGGER, index, start, bells.len() as u32]);
        self.ask(Command::DEVICE_SET_IRQS, &payload, bells).map(drop)
    }

    /// Unmasks the pin, which is masked after each interrupt.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn unmask(&mut self) -> Result<(), VfioUserError> {
        const UNMASK: u32 = 1 << 0 | 1 << 4;
        let payload = message::words(&[20, UNMASK, message::IRQ_INTX, 0, 1]);
        self.ask(Command::DEVICE_SET_IRQS, &payload, &[]).map(drop)
    }

    /// Disables all interrupts of a kind.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn silence(&mut self, index: u32) -> Result<(), VfioUserError> {
        const NONE_TRIGGER: u32 = 1 << 0 | 1 << 5;
        let payload = message::words(&[20, NONE_TRIGGER, index, 0, 0]);
        self.ask(Command::DEVICE_SET_IRQS, &payload, &[]).map(drop)
    }

    /// Resets the device.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn reset(&mut self) -> Result<(), VfioUserError> {
        self.ask(Command::DEVICE_RESET, &[], &[]).map(drop)
    }

    /// Reads from a region.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), VfioUserError> {
        let command = Command::REGION_READ;
        let (answer, _) = self.ask(command, &message::access(region, offset, data.len() as u32), &[])?;
        match answer.get(16..) {
            Some(read) if read.len() == data.len() => data.copy_from_slice(read),
            _ => return Err(self.unexpected(command, &format!("{} bytes", answer.len()))),
        }
        Ok(())
    }

    /// Writes to a region, and waits for the answer.
    ///
    /// # Errors
    /// See [`device`](VfioUser::device).
    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), VfioUserError> {
        let mut payload = message::access(region, offset, data.len() as u32).to_vec();
        payload.extend(data);
        self.ask(Command::REGION_WRITE, &payload, &[]).map(drop)
    }

    /// Writes a register of a region without waiting: requests no answer.
    ///
    /// # Errors
    /// The server has disconnected.
    #[inline]
    pub fn post(&mut self, region: u32, offset: u64, value: u32) -> Result<(), VfioUserError> {
        let mut bytes = [0; HEADER + 20];
        let header = self.header(Command::REGION_WRITE, 20, flag::NO_REPLY);
        bytes[..HEADER].copy_from_slice(&header.to_bytes());
        bytes[HEADER..HEADER + 16].copy_from_slice(&message::access(region, offset, 4));
        bytes[HEADER + 16..].copy_from_slice(&value.to_ne_bytes());
        self.posted += 1;
        let sent = messages::send(&self.socket, &bytes, &[], &[]);
        sent.map_err(|source| self.broken(Command::REGION_WRITE, source))
    }

    /// Writes several registers, given as offsets and values, with one message and without waiting.
    ///
    /// # Errors
    /// The server has disconnected.
    pub fn post_many(&mut self, region: u32, writes: &[(u64, u32)]) -> Result<(), VfioUserError> {
        let mut payload = (writes.len() as u64).to_ne_bytes().to_vec();
        for &(offset, value) in writes {
            payload.extend(message::access(region, offset, 4));
            payload.extend(u64::from(value).to_le_bytes());
        }
        let header = self.header(Command::REGION_WRITE_MULTI, payload.len(), flag::NO_REPLY);
        self.posted += 1;
        let sent = messages::send(&self.socket, &header.to_bytes(), &payload, &[]);
        sent.map_err(|source| self.broken(Command::REGION_WRITE_MULTI, source))
    }

    /// Returns the number of commands sent so far without an answer, and with one.
    #[must_use]
    pub fn messages(&self) -> (u64, u64) {
        (self.posted, self.answered)
    }

    /// Returns the connection. It becomes readable when the server has disconnected.
    #[must_use]
    pub fn connection(&self) -> &UnixStream {
        &self.socket
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[inline]
    fn header(&mut self, command: Command, payload: usize, flags: u32) -> Header {
        self.next_id = self.next_id.wrapping_add(1);
        Header { id: self.next_id, command: command as u16, size: (HEADER + payload) as u32, flags, error: 0 }
    }

    /// Sends a command and waits for its answer.
    fn ask(&mut self, command: Command, payload: &[u8], files: &[BorrowedFd<'_>]) -> Result<Answer, VfioUserError> {
        let header = self.header(command, payload.len(), 0);
        self.answered += 1;
        let sent = messages::send(&self.socket, &header.to_bytes(), payload, files);
        let answer = sent.and_then(|()| self.reply(header)).map_err(|source| self.broken(command, source))?;
        match answer {
            Ok(answer) => Ok(answer),
            Err(errno) => Err(VfioUserError::Refused {
                path: self.path.clone(),
                command: format!("{command:?}"),
                source: io::Error::from_raw_os_error(errno as i32),
            }),
        }
    }

    /// Receives the answer to a command. The inner error is an errno.
    fn reply(&mut self, asked: Header) -> io::Result<Result<Answer, u32>> {
        let late = |error| messages::no_answer("the server", error);
        let mut bytes = [0; HEADER];
        let (first, files) = messages::receive(&self.socket, &mut bytes).map_err(late)?;
        if first == 0 {
            return Err(late(io::ErrorKind::UnexpectedEof.into()));
        }
        self.socket.read_exact(&mut bytes[first..]).map_err(late)?;
        let header = Header::from_bytes(&bytes);
        let size = header.size as usize;
        let ours = (header.id, header.command) == (asked.id, asked.command) && header.flags & flag::TYPE == flag::REPLY;
        if !ours || !(HEADER..=MOST_BYTES).contains(&size) {
            return Err(io::Error::other(format!("it answers with {header:?}")));
        }
        let mut payload = vec![0; size - HEADER];
        self.socket.read_exact(&mut payload).map_err(late)?;
        Ok(if header.flags & flag::ERROR == 0 { Ok((payload, files)) } else { Err(header.error) })
    }

    fn unexpected(&self, command: Command, what: &str) -> VfioUserError {
        self.broken(command, io::Error::other(format!("it answers with {what}")))
    }

    #[cold]
    fn broken(&self, command: Command, source: io::Error) -> VfioUserError {
        VfioUserError::Dialogue { path: self.path.clone(), command: format!("{command:?}"), source }
    }
}
