//! Reading pcap and pcapng.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::format::{
    BLOCK_INTERFACE, BLOCK_OLD_PACKET, BLOCK_PACKET, BLOCK_SECTION, BLOCK_SIMPLE_PACKET, BYTE_ORDER, ETHERNET,
    MAX_BLOCK, MAX_SNAP, OPTION_END, OPTION_TSOFFSET, OPTION_TSRESOL, PCAP_MICROS, PCAP_NANOS,
};

/// One frame of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time since 1970. If the file gives none, the time of the frame before.
    pub time: Duration,
    /// Length on the wire; more than `data` if the capture truncated the frame.
    pub original_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
}

/// An error in a capture file, and its place.
#[derive(Debug, thiserror::Error)]
#[error("{}: frame {frame}, byte {position}: {problem}", path.display())]
pub struct CaptureError {
    /// The file.
    pub path: PathBuf,
    /// Number of the frame that could not be read, from 1.
    pub frame: u64,
    /// Offset in the file of the record or block with the error.
    pub position: u64,
    /// What is wrong.
    pub problem: CaptureProblem,
}

/// Kinds of errors in a capture file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureProblem {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file has another format.
    #[error("starts with {0:02x?}: not a pcap or pcapng file")]
    NotACapture([u8; 4]),
    /// The file ends inside a record.
    #[error("the file ends within a record: it was cut short")]
    Truncated,
    /// A length field is out of range.
    #[error("{what} is {value}: {rule}")]
    Length {
        /// Name of the field.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The allowed values.
        rule: &'static str,
    },
    /// An unsupported version of the format.
    #[error("format version {0}: only pcap 2 and pcapng 1 are known")]
    Version(u16),
    /// The link type is not Ethernet.
    #[error("link type {0}: only Ethernet (link type 1) can be replayed")]
    LinkType(u16),
    /// A frame of an interface without a description.
    #[error("interface {0} was not described before its first frame")]
    Interface(u32),
    /// A time resolution that exceeds 64-bit times.
    #[error("time resolution {0:#04x} of the interface is finer than any clock")]
    Resolution(u8),
    /// The file is too large for the memory limit.
    #[error("more than {0} bytes of frames: split the file (editcap -c) or raise the limit")]
    TooLarge(usize),
    /// The file has no frame that can be sent.
    #[error("no frame of 14 to 65,535 bytes")]
    Empty,
}

/// Reads the frames of a pcap or pcapng file in order.
pub struct CaptureReader<R> {
    input: R,
    path: PathBuf,
    position: u64,
    /// Start of the record or block being read.
    at: u64,
    frames: u64,
    format: Format,
    big_endian: bool,
    last_time: Duration,
    body: Vec<u8>,
}

enum Format {
    Pcap { nanos_per_tick: u64 },
    Pcapng { interfaces: Vec<Interface> },
}

struct Interface {
    link_type: u16,
    snap: u32,
    /// The resolution option of the interface, from which the ticks per second follow.
    resolution: u8,
    offset_seconds: i64,
}

impl CaptureReader<BufReader<File>> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a capture of Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        match File::open(path) {
            Ok(file) => CaptureReader::new(BufReader::with_capacity(1 << 18, file), path),
            Err(error) => Err(CaptureError { path: path.to_owned(), frame: 1, position: 0, problem: error.into() }),
        }
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads the header of a capture from any input. `path` is its name in errors.
    ///
    /// # Errors
    /// The input is not a capture of Ethernet frames.
    pub fn new(input: R, path: &Path) -> Result<Self, CaptureError> {
        let mut reader = CaptureReader {
            input,
            path: path.to_owned(),
            position: 0,
            at: 0,
            frames: 0,
            format: Format::Pcap { nanos_per_tick: 1 },
            big_endian: false,
            last_time: Duration::ZERO,
            body: Vec::new(),
        };
        match reader.header() {
            Ok(()) => Ok(reader),
            Err(problem) => Err(reader.error(problem)),
        }
    }

    /// Returns the next frame, or `None` at the end of the file.
    ///
    /// # Errors
    /// The file is damaged or truncated, or the frame is not from Ethernet.
    pub fn next_frame(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        self.at = self.position;
        let found = match self.format {
            Format::Pcap { nanos_per_tick } => self.next_pcap(nanos_per_tick),
            Format::Pcapng { .. } => self.next_pcapng(),
        };
        match found {
            Ok(None) => Ok(None),
            Ok(Some(Found { time, original_len, start, len })) => {
                self.frames += 1;
                self.last_time = time;
                Ok(Some(Record { time, original_len, data: &self.body[start..start + len] }))
            }
            Err(problem) => Err(self.error(problem)),
        }
    }

    fn error(&self, problem: CaptureProblem) -> CaptureError {
        CaptureError { path: self.path.clone(), frame: self.frames + 1, position: self.at, problem }
    }

    /// Returns an error at the frame that was read last.
    pub(super) fn refuse(&self, problem: CaptureProblem) -> CaptureError {
        CaptureError { frame: self.frames, ..self.error(problem) }
    }

    fn header(&mut self) -> Result<(), CaptureProblem> {
        let magic: [u8; 4] = self.array()?;
        let (big, little) = (u32::from_be_bytes(magic), u32::from_le_bytes(magic));
        if big == BLOCK_SECTION {
            self.format = Format::Pcapng { interfaces: Vec::new() };
            return self.section();
        }
        self.big_endian = matches!(big, PCAP_MICROS | PCAP_NANOS);
        let nanos_per_tick = match if self.big_endian { big } else { little } {
            PCAP_MICROS => 1000,
            PCAP_NANOS => 1,
            _ => return Err(CaptureProblem::NotACapture(magic)),
        };
        self.format = Format::Pcap { nanos_per_tick };
        let rest: [u8; 20] = self.array()?;
        let major = self.u16(&rest, 0);
        if major != 2 {
            return Err(CaptureProblem::Version(major));
        }
        // The upper half tells of trailing frame check sequences, which are hardly ever captured.
        match self.u32(&rest, 16) as u16 {
            ETHERNET => Ok(()),
            other => Err(CaptureProblem::LinkType(other)),
        }
    }

    fn next_pcap(&mut self, nanos_per_tick: u64) -> Result<Option<Found>, CaptureProblem> {
        let Some(header) = self.array_or_end::<16>()? else { return Ok(None) };
        let field = |offset| self.u32(&header, offset);
        let seconds = Duration::from_secs(u64::from(field(0)));
        let time = seconds + Duration::from_nanos(u64::from(field(4)) * nanos_per_tick);
        let (len, original_len) = (snapped(field(8))?, field(12));
        self.read_body(len)?;
        Ok(Some(Found { time, original_len, start: 0, len }))
    }

    fn next_pcapng(&mut self) -> Result<Option<Found>, CaptureProblem> {
        loop {
            self.at = self.position;
            let Some(kind) = self.array_or_end::<4>()? else { return Ok(None) };
            if u32::from_be_bytes(kind) == BLOCK_SECTION {
                self.section()?;
                continue;
            }
            let kind = self.u32(&kind, 0);
            let len: [u8; 4] = self.array()?;
            let len = self.u32(&len, 0);
            self.block_body(len, 8)?;
            match kind {
                BLOCK_INTERFACE => self.interface()?,
                BLOCK_PACKET | BLOCK_OLD_PACKET => return self.packet(kind == BLOCK_OLD_PACKET).map(Some),
                BLOCK_SIMPLE_PACKET => return self.simple_packet().map(Some),
                _ => {}
            }
        }
    }

    /// Reads the rest of a section header block, after its type.
    fn section(&mut self) -> Result<(), CaptureProblem> {
        let start: [u8; 8] = self.array()?;
        self.big_endian = match (u32_at(&start, 4, true), u32_at(&start, 4, false)) {
            (BYTE_ORDER, _) => true,
            (_, BYTE_ORDER) => false,
            (value, _) => {
                let rule = "must be 1a2b3c4d in one byte order";
                return Err(CaptureProblem::Length { what: "byte order mark of the section", value, rule });
            }
        };
        self.block_body(self.u32(&start, 0), 12)?;
        let major = self.body_u16(0)?;
        if major != 1 {
            return Err(CaptureProblem::Version(major));
        }
        self.format = Format::Pcapng { interfaces: Vec::new() };
        Ok(())
    }

    /// Reads the rest of a block of `len` bytes into `body`. `consumed` bytes of the block are read already.
    fn block_body(&mut self, len: u32, consumed: u32) -> Result<(), CaptureProblem> {
        let wrong = |rule| CaptureProblem::Length { what: "block length", value: len, rule };
        if len < consumed + 4 || len > MAX_BLOCK || !len.is_multiple_of(4) {
            return Err(wrong("must be a multiple of 4 that holds the block, up to 16 MiB"));
        }
        self.read_body((len - consumed - 4) as usize)?;
        let trailer: [u8; 4] = self.array()?;
        if self.u32(&trailer, 0) == len {
            Ok(())
        } else {
            Err(wrong("differs from the length at the end of the block"))
        }
    }

    fn interface(&mut self) -> Result<(), CaptureProblem> {
        let (link_type, snap) = (self.body_u16(0)?, self.body_u32(4)?);
        let mut found = Interface { link_type, snap, resolution: 6, offset_seconds: 0 };
        let mut place = 8;
        while place + 4 <= self.body.len() {
            let (code, len) = (self.body_u16(place)?, usize::from(self.body_u16(place + 2)?));
            let Some(value) = self.body.get(place + 4..place + 4 + len) else { return Err(CaptureProblem::Truncated) };
            match (code, value) {
                (OPTION_END, _) => break,
                (OPTION_TSRESOL, &[resolution]) => found.resolution = resolution,
                (OPTION_TSOFFSET, value) => {
                    if let Ok(bytes) = <[u8; 8]>::try_from(value) {
                        let big = self.big_endian;
                        found.offset_seconds = if big { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                    }
                }
                _ => {}
            }
            place += 4 + len.next_multiple_of(4);
        }
        if let Format::Pcapng { interfaces } = &mut self.format {
            interfaces.push(found);
        }
        Ok(())
    }

    fn packet(&mut self, old: bool) -> Result<Found, CaptureProblem> {
        let number = if old { u32::from(self.body_u16(0)?) } else { self.body_u32(0)? };
        let ticks = u64::from(self.body_u32(4)?) << 32 | u64::from(self.body_u32(8)?);
        let (len, original_len) = (snapped(self.body_u32(12)?)?, self.body_u32(16)?);
        if 20 + len > self.body.len() {
            let rule = "is more than the block holds";
            return Err(CaptureProblem::Length { what: "captured length", value: len as u32, rule });
        }
        let interface = self.ethernet(number)?;
        Ok(Found { time: interface.time(ticks)?, original_len, start: 20, len })
    }

    fn simple_packet(&mut self) -> Result<Found, CaptureProblem> {
        let original_len = self.body_u32(0)?;
        let snap = match self.ethernet(0)?.snap {
            0 => u32::MAX,
            snap => snap,
        };
        let len = snapped(original_len.min(snap))?;
        if 4 + len > self.body.len() {
            return Err(CaptureProblem::Length {
                what: "frame length",
                value: len as u32,
                rule: "is more than the block holds",
            });
        }
        Ok(Found { time: self.last_time, original_len, start: 4, len })
    }

    fn ethernet(&self, number: u32) -> Result<&Interface, CaptureProblem> {
        let Format::Pcapng { interfaces } = &self.format else { return Err(CaptureProblem::Interface(number)) };
        match interfaces.get(number as usize) {
            None => Err(CaptureProblem::Interface(number)),
            Some(interface) if interface.link_type != ETHERNET => Err(CaptureProblem::LinkType(interface.link_type)),
            Some(interface) => Ok(interface),
        }
    }

    fn read_body(&mut self, len: usize) -> Result<(), CaptureProblem> {
        self.body.clear();
        // The vector grows with the bytes that are really there, whatever the length field claims.
        let got = (&mut self.input).take(len as u64).read_to_end(&mut self.body)?;
        self.position += got as u64;
        if got == len { Ok(()) } else { Err(CaptureProblem::Truncated) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CaptureProblem> {
        self.array_or_end()?.ok_or(CaptureProblem::Truncated)
    }

    /// Returns `None` when the input ends exactly here.
    fn array_or_end<const N: usize>(&mut self) -> Result<Option<[u8; N]>, CaptureProblem> {
        let mut bytes = [0; N];
        let mut got = 0;
        while got < N {
            match self.input.read(&mut bytes[got..]) {
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => return Err(CaptureProblem::Truncated),
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.position += N as u64;
        Ok(Some(bytes))
    }

    fn body_u16(&self, offset: usize) -> Result<u16, CaptureProblem> {
        self.body.get(offset..offset + 2).map(|bytes| self.u16(bytes, 0)).ok_or(CaptureProblem::Truncated)
    }

    fn body_u32(&self, offset: usize) -> Result<u32, CaptureProblem> {
        self.body.get(offset..offset + 4).map(|bytes| self.u32(bytes, 0)).ok_or(CaptureProblem::Truncated)
    }

    fn u16(&self, bytes: &[u8], offset: usize) -> u16 {
        let pair = [bytes[offset], bytes[offset + 1]];
        if self.big_endian { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    }

    fn u32(&self, bytes: &[u8], offset: usize) -> u32 {
        u32_at(bytes, offset, self.big_endian)
    }
}

impl Interface {
    fn time(&self, ticks: u64) -> Result<Duration, CaptureProblem> {
        let exponent = u32::from(self.resolution & 0x7f);
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        let per_second = match base.checked_pow(exponent) {
            Some(per_second) if per_second <= 1 << 80 => per_second,
            _ => return Err(CaptureProblem::Resolution(self.resolution)),
        };
        let ticks = u128::from(ticks);
        let seconds = ((ticks / per_second) as u64).saturating_add_signed(self.offset_seconds);
        let nanos = ticks % per_second * 1_000_000_000 / per_second;
        Ok(Duration::new(seconds, nanos as u32))
    }
}

/// The place of a frame in the body.
struct Found {
    time: Duration,
    original_len: u32,
    start: usize,
    len: usize,
}

fn snapped(len: u32) -> Result<usize, CaptureProblem> {
    if len as usize <= MAX_SNAP {
        return Ok(len as usize);
    }
    Err(CaptureProblem::Length {
        what: "captured length",
        value: len,
        rule: "must be at most 262,144; the file is damaged",
    })
}

fn u32_at(bytes: &[u8], offset: usize, big_endian: bool) -> u32 {
    let word = [bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]];
    if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
}
