//! The frames: each names its sender, the sender's incarnation, its flow and its number, under a hash of all its bytes.
//!
//! ```text
//!  0  Ethernet header, type 0x88B5
//! 14  magic        "SK"
//! 16  sender       u16   number of the member
//! 18  to           u16   number of the member, or ALL
//! 20  incarnation  u32   of the sender: one for each of its processes
//! 24  number       u64   from 1, for each flow of an incarnation
//! 32  length       u16   of the frame
//! 34  hash         u64   of all other bytes
//! 42  payload            depends on all of this
//! ```

use ringway_testing::frame::{Address, BROADCAST, ETHERTYPE};

const MAGIC: [u8; 2] = *b"SK";
const HASH: std::ops::Range<usize> = 34..42;
const PAYLOAD: usize = 42;
/// Bytes of the shortest and of the longest frame.
const SHORTEST: usize = 60;
const LONGEST: usize = 1514;
/// The destination of a broadcast.
pub const ALL: u16 = u16::MAX;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The member that sent it.
    pub sender: u16,
    /// The member that it is for, or [`ALL`].
    pub to: u16,
    /// The process of the sender.
    pub incarnation: u32,
    /// Its place in its flow.
    pub number: u64,
}

/// What a received frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Not one of these frames.
    Foreign,
    /// Bytes differ from those that were sent. The label is what can be read of it.
    Altered(Label),
    /// Whole.
    Whole(Label),
}

/// The address of a member.
pub fn address(member: u16) -> Address {
    let [high, low] = member.to_be_bytes();
    [0x52, 0x54, 0x00, 0x50, high, low]
}

impl Label {
    /// Bytes of this frame: one in four is of any length, the others are short.
    pub fn length(&self) -> usize {
        let random = self.number.wrapping_mul(ODD) >> 33;
        let most = if random.is_multiple_of(4) { LONGEST } else { 200 };
        SHORTEST + (random / 4) as usize % (most - SHORTEST + 1)
    }

    /// Writes the frame, which has [`length`](Self::length) bytes.
    pub fn write(&self, frame: &mut [u8]) {
        frame[..6].copy_from_slice(&if self.to == ALL { BROADCAST } else { address(self.to) });
        frame[6..12].copy_from_slice(&address(self.sender));
        frame[12..14].copy_from_slice(&ETHERTYPE);
        frame[14..16].copy_from_slice(&MAGIC);
        frame[16..18].copy_from_slice(&self.sender.to_be_bytes());
        frame[18..20].copy_from_slice(&self.to.to_be_bytes());
        frame[20..24].copy_from_slice(&self.incarnation.to_be_bytes());
        frame[24..32].copy_from_slice(&self.number.to_be_bytes());
        let length = u16::try_from(frame.len()).expect("a frame's length");
        frame[32..34].copy_from_slice(&length.to_be_bytes());
        let mut word = self.number ^ u64::from(self.sender) << 48 ^ u64::from(self.incarnation) << 16;
        for bytes in frame[PAYLOAD..].chunks_mut(8) {
            word = word.wrapping_mul(ODD).rotate_left(23);
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        let hash = hash(frame);
        frame[HASH].copy_from_slice(&hash.to_be_bytes());
    }
}

/// The hash of all bytes but those of the hash itself.
fn hash(frame: &[u8]) -> u64 {
    let add = |hash: u64, bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(ODD).rotate_left(29)
    };
    let head = frame[..HASH.start].chunks(8).fold(frame.len() as u64, add);
    frame[HASH.end..].chunks(8).fold(head, add)
}

/// Reads a received frame.
pub fn read(frame: &[u8]) -> Read {
    if frame.len() < PAYLOAD || frame[12..14] != ETHERTYPE {
        return Read::Foreign;
    }
    let short = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let label = Label {
        sender: short(16),
        to: short(18),
        incarnation: u32::from_be_bytes(frame[20..24].try_into().expect("four bytes")),
        number: u64::from_be_bytes(frame[24..32].try_into().expect("eight bytes")),
    };
    let said = u64::from_be_bytes(frame[HASH].try_into().expect("eight bytes"));
    let is_whole = frame[14..16] == MAGIC && usize::from(short(32)) == frame.len() && said == hash(frame);
    if is_whole { Read::Whole(label) } else { Read::Altered(label) }
}

#[test]
fn each_changed_byte_of_a_frame_is_seen() {
    let label = Label { sender: 3, to: 9, incarnation: 7, number: 1 << 40 };
    let mut frame = vec![0; 97];
    label.write(&mut frame);
    assert_eq!(read(&frame), Read::Whole(label));
    for at in 0..frame.len() {
        frame[at] ^= 0x10;
        assert_ne!(read(&frame), Read::Whole(label), "byte {at}");
        frame[at] ^= 0x10;
    }
    assert_ne!(read(&frame[..96]), Read::Whole(label));
}
