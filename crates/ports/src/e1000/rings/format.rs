//! Receive descriptors, before and after their use (SDM 3.2.3; 82574 datasheet 7.1.4 and 7.1.5).

use std::sync::atomic::{AtomicU64, Ordering};

/// How receive descriptors are laid out, and the buffers that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 16 bytes, one buffer.
    Legacy {
        /// Its bytes (RCTL.BSIZE and BSEX).
        buffer: u32,
    },
    /// 16 bytes, one buffer, whose address is overwritten (RFCTL.EXSTEN).
    Extended {
        /// Its bytes.
        buffer: u32,
    },
    /// 32 bytes, four buffers (RCTL.DTYP). Frames fill one buffer after the other: headers are not told from what follows,
    /// which the format allows.
    Split {
        /// Their bytes (PSRCTL).
        buffers: [u32; 4],
    },
}

/// Descriptor done.
pub(super) const DONE: u64 = 1;
/// The last descriptor of a frame.
pub(super) const LAST: u64 = 1 << 1;
/// What is said of checksums means nothing.
pub(super) const NO_SUMS: u64 = 1 << 2;
/// A tag was taken out.
const TAGGED: u64 = 1 << 3;
/// The sum is one of UDP. Extended formats only.
pub(super) const UDP_SUM: u64 = 1 << 4;
/// The TCP or UDP checksum was looked at, and is right.
pub(super) const TRANSPORT_SUM: u64 = 1 << 5;
/// The same for that of an IPv4 header.
pub(super) const IP_SUM: u64 = 1 << 6;

/// What is said of a frame: the status bits, which are the same in all formats, and the tag that was taken out.
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
    /// Bytes of the only buffer; none for those of several.
    #[inline]
    pub(super) fn single(self) -> Option<usize> {
        match self {
            Format::Legacy { buffer } | Format::Extended { buffer } => Some(buffer as usize),
            Format::Split { .. } => None,
        }
    }

    /// Bytes that a descriptor takes.
    pub(super) fn room(self) -> usize {
        match self {
            Format::Legacy { buffer } | Format::Extended { buffer } => buffer as usize,
            Format::Split { buffers } => buffers.iter().map(|&bytes| bytes as usize).sum(),
        }
    }

    /// 16-byte words of the ring in a descriptor: head and tail count those (as drivers do, 82574 datasheet 10.2.5.8).
    pub(super) fn words(self) -> u32 {
        if matches!(self, Format::Split { .. }) { 2 } else { 1 }
    }

    /// The second word of a descriptor with `len` bytes in its only buffer, the frame's last.
    #[inline(always)]
    pub(super) fn only(self, status: Status, len: usize) -> u64 {
        let word = match self {
            Format::Legacy { .. } => (status.bits | LAST) << 32,
            _ => status.bits | LAST,
        };
        self.with_len(word | u64::from(status.tag) << 48, len)
    }

    /// The second word of a descriptor like one with no bytes, with `len` of them.
    #[inline(always)]
    pub(super) fn with_len(self, none: u64, len: usize) -> u64 {
        none | match self {
            Format::Legacy { .. } => len as u64,
            _ => (len as u64) << 32,
        }
    }

    /// Writes a descriptor back whose only buffer was filled: first what is behind the word that the driver looks at.
    #[inline(always)]
    pub(super) fn write(self, words: &[AtomicU64; 2], word: u64) {
        if matches!(self, Format::Extended { .. }) {
            words[0].store(0, Ordering::Relaxed);
        }
        words[1].store(word.to_le(), Ordering::Release);
    }

    /// Bytes in each buffer of a descriptor that holds `len` bytes.
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

    /// The words of a descriptor that holds `len` bytes; the second is the one that the driver looks at.
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
