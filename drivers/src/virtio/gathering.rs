//! Mergeable receive buffers (virtio 1.3, 5.1.6.4).

use super::buffer::HEADER;
use super::ring::Misuse;
use crate::area::Buffers;

/// A received frame over several buffers, as far as received.
#[derive(Debug, Default)]
pub struct Gathering {
    bytes: Vec<u8>,
    /// Number of buffers still to come.
    missing: u16,
    /// Most buffers of a frame.
    most: u32,
}

impl Gathering {
    /// Starts without a frame. A frame may have at most `most` buffers.
    pub fn new(most: u32) -> Gathering {
        Gathering { most, ..Gathering::default() }
    }

    /// Adds the next buffer. Returns true when its frame is complete.
    pub fn add(
        &mut self,
        buffers: &Buffers,
        id: u16,
        written: u32,
        take: &mut impl FnMut(&[u8]),
    ) -> Result<bool, Misuse> {
        let wrong = || wrong_length(buffers, written);
        let piece = buffers.all(id, HEADER, written as usize).ok_or_else(wrong)?;
        if self.missing > 0 {
            self.bytes.extend_from_slice(piece);
            self.missing -= 1;
            if self.missing == 0 {
                take(&self.bytes);
                self.bytes.clear();
            }
            return Ok(self.missing == 0);
        }
        let (header, frame) = piece.split_at_checked(HEADER).ok_or_else(wrong)?;
        match u16::from_le_bytes([header[10], header[11]]) {
            1 => {
                take(frame);
                Ok(true)
            }
            count if count == 0 || u32::from(count) > self.most => Err(Misuse::Buffers(count)),
            count => {
                self.bytes.extend_from_slice(frame);
                self.missing = count - 1;
                Ok(false)
            }
        }
    }
}

/// Returns the violation of a device that reports `written` bytes.
pub fn wrong_length(buffers: &Buffers, written: u32) -> Misuse {
    Misuse::Length(written, HEADER + buffers.capacity())
}
