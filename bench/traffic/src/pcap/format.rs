//! Numbers of both file formats.

/// Most bytes of one frame in a file: the limit of programs that write such files.
pub const MAX_SNAP: usize = 262_144;
/// Most bytes of one pcapng block.
pub const MAX_BLOCK: u32 = 16 << 20;

pub const PCAP_MICROS: u32 = 0xa1b2_c3d4;
pub const PCAP_NANOS: u32 = 0xa1b2_3c4d;
pub const BLOCK_SECTION: u32 = 0x0a0d_0d0a;
pub const BLOCK_INTERFACE: u32 = 1;
pub const BLOCK_OLD_PACKET: u32 = 2;
pub const BLOCK_SIMPLE_PACKET: u32 = 3;
pub const BLOCK_PACKET: u32 = 6;
pub const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub const OPTION_END: u16 = 0;
pub const OPTION_TSRESOL: u16 = 9;
pub const OPTION_TSOFFSET: u16 = 14;
/// LINKTYPE_ETHERNET.
pub const ETHERNET: u16 = 1;
