//! Capture files: replayed as a [`crate::Source`], read frame by frame, and written.
//!
//! Both formats that tcpdump and Wireshark write, pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng), in either
//! byte order and with any resolution of time. The reader is strict where leniency would send wrong frames: a file cut short or damaged
//! is an error that names the file, the byte and the frame.

mod read;
mod replay;
mod write;

pub use read::{CaptureError, CaptureProblem, CaptureReader, Record};
pub use replay::{Replay, ReplayOptions, Timing};
pub use write::{Format, Recorder};

/// Most bytes of one frame in a file: the limit of programs that write such files.
pub const MAX_SNAP: usize = 262_144;
/// Most bytes of one pcapng block.
const MAX_BLOCK: u32 = 16 << 20;

const PCAP_MICROS: u32 = 0xa1b2_c3d4;
const PCAP_NANOS: u32 = 0xa1b2_3c4d;
const BLOCK_SECTION: u32 = 0x0a0d_0d0a;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_OLD_PACKET: u32 = 2;
const BLOCK_SIMPLE_PACKET: u32 = 3;
const BLOCK_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const OPTION_END: u16 = 0;
const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

#[cfg(test)]
mod tests;
