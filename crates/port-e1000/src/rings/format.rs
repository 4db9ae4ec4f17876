//! Receive descriptors, before and after their use (SDM 3.2.3; 82574 datasheet 7.1.4 and 7.1.5).

use std::sync::atomic::{AtomicU64, Ordering};

/// Layout of the receive descriptors, and their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Legacy: 16 bytes, one buffer.
    Legacy {
        /// Size of the buffer in bytes (RCTL.BSIZE and BSEX).
        buffer: u32,
    },
    /// Extended: 16 bytes, one buffer. Writing back overwrites the buffer's address (RFCTL.EXSTEN).
    Extended {
        /// Size of the buffer in bytes.
        buffer: u32,
    },
    /// Packet split: 32 bytes, four buffers (RCTL.DTYP). Frames fill one buffer after the other. The device does not
    /// put headers into a buffer of their own, which the format permits.
    Split {
        /// Sizes of the buffers in bytes (PSRCTL).
        buffers: [u32; 4],
    },
}

/// Descriptor done (DD).
pub(super) const DONE: u64 = 1;
/// End of packet (EOP).
pub(super) const LAST: u64 = 1 << 1;
/// Ignore the checksum indications (IXSM).
pub(super) const NO_SUMS: u64 = 1 << 2;
/// A VLAN tag was removed (VP).
const TAGGED: u64 = 1 << 3;
/// The checksum is that of UDP (UDPCS). Extended formats only.
pub(super) const UDP_SUM: u64 = 1 << 4;
/// The TCP or UDP checksum was checked and is correct (TCPCS).
pub(super) const TRANSPORT_SUM: u64 = 1 << 5;
/// The IPv4 header checksum was checked and is correct (IPCS).
pub(super) const IP_SUM: u64 = 1 << 6;

/// Error in the frame's data (RXE), in the byte of errors.
const RXE: u64 = 1 << 7;

/// The status of a frame: the status bits, which are the same in all formats, and the removed VLAN tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    bits: u64,
    tag: u16,
}

impl Status {
    #[inline(always)]
    pub(super) fn new(sums: u64, tag: Option<u16>) -> Status {
        Status { bits: DONE | sums | if tag.is_some() { TAGGED } else { 0 }, tag: tag.unwrap_or(0) }
    }

    fn but_last(self) -> Status {
        Status { bits: self.bits & !LAST, ..self }
    }

    fn and_last(self) -> Status {
        Status { bits: self.bits | LAST, ..self }
    }
}

impl Format {
    /// Returns the size of the only buffer in bytes, or `None` for descriptors with several buffers.
    #[inline]
    pub(super) fn single(self) -> Option<usize> {
        match self {
            Format::Legacy { buffer } | Format::Extended { buffer } => Some(buffer as usize),
            Format::Split { .. } => None,
        }
    }

    /// Returns the bytes that one descriptor holds.
    pub(super) fn room(self) -> usize {
        match self {
            Format::Legacy { buffer } | Format::Extended { buffer } => buffer as usize,
            Format::Split { buffers } => buffers.iter().map(|&bytes| bytes as usize).sum(),
        }
    }

    /// Returns the size of a descriptor in 16-byte units. Head and tail count these units (as drivers do; 82574
    /// datasheet 10.2.5.8).
    pub(super) fn words(self) -> u32 {
        if matches!(self, Format::Split { .. }) { 2 } else { 1 }
    }

    /// Returns the second word of a frame's last descriptor, with `len` bytes in its only buffer.
    #[inline(always)]
    pub(super) fn only(self, status: Status, len: usize) -> u64 {
        let word = match self {
            Format::Legacy { .. } => (status.bits | LAST) << 32,
            _ => status.bits | LAST,
        };
        self.with_len(word | u64::from(status.tag) << 48, len)
    }

    /// Returns the second word `none`, of a descriptor with no bytes, changed to `len` bytes.
    #[inline(always)]
    pub(super) fn with_len(self, none: u64, len: usize) -> u64 {
        none | match self {
            Format::Legacy { .. } => len as u64,
            _ => (len as u64) << 32,
        }
    }

    /// Writes back a descriptor with one buffer. The word that the driver polls is written last.
    #[inline(always)]
    pub(super) fn write(self, words: &[AtomicU64; 2], word: u64) {
        if matches!(self, Format::Extended { .. }) {
            words[0].store(0, Ordering::Relaxed);
        }
        words[1].store(word.to_le(), Ordering::Release);
    }

    /// Returns true if a descriptor is written back.
    pub(super) fn is_done(self, words: &[AtomicU64; 2]) -> bool {
        let word = u64::from_le(words[1].load(Ordering::Acquire));
        let done = if matches!(self, Format::Legacy { .. }) { DONE << 32 } else { DONE };
        word & done != 0
    }

    /// Writes back a descriptor of a frame of no bytes with an error (RXE), which drivers drop.
    pub(super) fn write_bad(self, words: &[AtomicU64; 2]) {
        let word = match self {
            Format::Legacy { .. } => (DONE | LAST) << 32 | RXE << 40,
            _ => DONE | LAST | RXE << 24,
        };
        self.write(words, word);
    }

    /// Returns how a descriptor divides `len` bytes among its buffers.
    pub(super) fn parts(self, mut len: usize) -> [usize; 4] {
        let buffers = match self {
            Format::Legacy { buffer } | Format::Extended { buffer } => [buffer, 0, 0, 0],
            Format::Split { buffers } => buffers,
        };
        buffers.map(|bytes| {
            let part = len.min(bytes as usize);
            len -= part;
            part
        })
    }

    /// Returns the words of a written-back descriptor with `len` bytes. The driver polls the second word.
    pub(super) fn outcome(self, status: Status, len: usize, last: bool) -> [u64; 4] {
        let status = if last { status.and_last() } else { status.but_last() };
        let parts = self.parts(len).map(|part| part as u64);
        let tag = u64::from(status.tag) << 48;
        match self {
            Format::Legacy { .. } => [0, parts[0] | status.bits << 32 | tag, 0, 0],
            Format::Extended { .. } => [0, status.bits | parts[0] << 32 | tag, 0, 0],
            Format::Split { .. } => {
                [0, status.bits | parts[0] << 32 | tag, parts[1] << 16 | parts[2] << 32 | parts[3] << 48, 0]
            }
        }
    }
}
