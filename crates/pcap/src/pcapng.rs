//! The blocks of a capture: pcapng, little-endian, with one Ethernet interface and times in nanoseconds, as
//! `ringway-capture` writes it.

use std::ops::Range;

/// Enhanced Packet Block.
const PACKET: u32 = 6;
/// Most bytes of a block.
const MAX_BLOCK: usize = 1 << 20;
/// Bytes of an Enhanced Packet Block before its data.
const PACKET_HEAD: usize = 28;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;

/// A frame in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Where its bytes are, from the start of the block.
    pub data: Range<usize>,
    /// Bytes of the frame before it was cut.
    pub len: u32,
    /// 1: inbound, from the port's client; 2: outbound.
    pub way: u32,
    /// Frames that are missing before this one.
    pub lost: u64,
}

/// A block at the start of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// It is not there as a whole.
    Part,
    /// A frame, and the bytes of its block.
    Frame(Captured, usize),
    /// Another block of so many bytes.
    Other(usize),
}

/// Reads the block at the start of `bytes`.
///
/// # Errors
/// The bytes are no block.
pub fn read(bytes: &[u8]) -> Result<Block, &'static str> {
    let (Some(kind), Some(len)) = (word(bytes, 0), word(bytes, 4)) else { return Ok(Block::Part) };
    let len = len as usize;
    if !(12..=MAX_BLOCK).contains(&len) || !len.is_multiple_of(4) {
        return Err("the capture has a block of an impossible length");
    }
    let Some(block) = bytes.get(..len) else { return Ok(Block::Part) };
    if kind != PACKET {
        return Ok(Block::Other(len));
    }
    packet(block).ok_or("the capture has a damaged frame").map(|captured| Block::Frame(captured, len))
}

fn packet(block: &[u8]) -> Option<Captured> {
    let (high, low) = (word(block, 12)?, word(block, 16)?);
    let (present, len) = (word(block, 20)? as usize, word(block, 24)?);
    let data = PACKET_HEAD..PACKET_HEAD.checked_add(present)?;
    // Programs rely on a frame that is at least as long as what is there of it.
    if data.end > block.len() - 4 || present > len as usize {
        return None;
    }
    let mut captured = Captured { time: u64::from(high) << 32 | u64::from(low), data, len, way: 0, lost: 0 };
    let mut at = captured.data.end.next_multiple_of(4);
    // The block ends with its length.
    while at + 4 <= block.len() - 4 {
        let code = u16::from_le_bytes(*block.get(at..)?.first_chunk()?);
        let size = usize::from(u16::from_le_bytes(*block.get(at + 2..)?.first_chunk()?));
        let value = block.get(at + 4..at + 4 + size)?;
        match code {
            0 => break,
            EPB_FLAGS => captured.way = u32::from_le_bytes(*value.first_chunk()?) & 3,
            EPB_DROPCOUNT => captured.lost = u64::from_le_bytes(*value.first_chunk()?),
            _ => {}
        }
        at += 4 + size.next_multiple_of(4);
    }
    Some(captured)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(data: &[u8], options: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> =
            [0, 1, 2, data.len() as u32, 99].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(options);
        let len = (body.len() as u32 + 12).to_le_bytes();
        [&PACKET.to_le_bytes()[..], &len, &body, &len].concat()
    }

    #[test]
    fn a_frame_has_its_time_direction_and_losses() {
        let options = [&[2, 0, 4, 0, 2, 0, 0, 0][..], &[4, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0], &[0; 4]].concat();
        let bytes = block(b"hello", &options);
        let wanted = Captured { time: 1 << 32 | 2, data: 28..33, len: 99, way: 2, lost: 7 };
        assert_eq!(read(&bytes), Ok(Block::Frame(wanted, bytes.len())));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), Ok(Block::Part), "{len}");
        }
    }

    #[test]
    fn damaged_blocks_are_refused_or_read_without_harm() {
        let bytes = block(b"hello", &[2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                if let Ok(Block::Frame(captured, len)) = read(&bytes) {
                    assert!(captured.data.end <= len && len <= bytes.len());
                }
            }
        }
        for len in [0, 11, 13, 1 << 20 | 4, u32::MAX] {
            assert!(read(&[PACKET.to_le_bytes(), len.to_le_bytes()].concat()).is_err(), "{len}");
        }
        // Longer than its block, and longer than the frame that it is a part of.
        for (at, value) in [(20, 6u32), (20, u32::MAX), (24, 4)] {
            let mut bytes = block(b"hello", &[]);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!((value == 6) == read(&bytes).is_ok(), "{value} at {at}");
        }
    }
}
