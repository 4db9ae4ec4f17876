//! A socket, its memory (UMEM), and the entries of its receive and transmit rings.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use ringway_memory::Mapping;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{XdpDescOptions, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Bytes of `struct xsk_tx_metadata`, which end where the frame begins (Linux, Documentation/networking/xsk-tx-metadata.rst).
pub const METADATA: usize = 24;
/// The memory has room for metadata before each frame (`XDP_UMEM_TX_METADATA_LEN`, Linux 6.11).
pub const HAS_METADATA: XdpUmemRegFlags = XdpUmemRegFlags::from_bits_retain(1 << 2);
/// The frame has metadata (`XDP_TX_METADATA`).
const WITH_METADATA: XdpDescOptions = XdpDescOptions::from_bits_retain(1 << 1);

/// Makes a socket.
///
/// # Errors
/// This user may not, or the kernel has no XDP sockets.
pub fn xdp_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Gives the kernel the memory of a socket, in chunks of this size, with these flags if it knows them. Returns the bytes that it has for
/// metadata before each sent piece.
pub fn register(socket: BorrowedFd<'_>, memory: &Mapping, chunk: usize, flags: XdpUmemRegFlags) -> io::Result<usize> {
    let before = if flags.is_empty() { 0 } else { METADATA };
    let whole = memory.whole();
    let registration = XdpUmemReg {
        addr: whole.as_ptr() as u64,
        len: whole.len() as u64,
        chunk_size: chunk as u32,
        headroom: 0,
        flags,
        tx_metadata_len: before as u32,
    };
    match sockopt::set_xdp_umem_reg(socket, registration) {
        Err(Errno::INVAL) if before > 0 => register(socket, memory, chunk, XdpUmemRegFlags::empty()),
        other => Ok(other.map(|()| before)?),
    }
}

/// An entry of the receive or the transmit ring: `struct xdp_desc`.
pub struct Entry {
    /// Offset in the memory.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// The frame's next piece is in the next entry.
    pub continues: bool,
    /// Metadata are before a sent frame's first piece.
    pub has_metadata: bool,
}

impl Entry {
    /// Reads an entry.
    #[inline]
    pub fn of([address, rest]: [u64; 2]) -> Entry {
        let options = XdpDescOptions::from_bits_retain((rest >> 32) as u32);
        let continues = options.contains(XdpDescOptions::XDP_PKT_CONTD);
        Entry { address, len: rest as u32, continues, has_metadata: options.contains(WITH_METADATA) }
    }

    /// Returns the words of the entry.
    #[inline]
    pub fn words(&self) -> [u64; 2] {
        let mut options = XdpDescOptions::empty();
        options.set(XdpDescOptions::XDP_PKT_CONTD, self.continues);
        options.set(WITH_METADATA, self.has_metadata);
        [self.address, u64::from(options.bits()) << 32 | u64::from(self.len)]
    }
}

/// The number of the option `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17).
const FRAMES_OF_A_CALL: libc::c_int = 9;
/// Frames that a call sends in copy mode without this option.
const DEFAULT_FRAMES_OF_A_CALL: u32 = 32;

/// Has a call send as many frames as the ring has places, in copy mode. Returns how many it sends: kernels without the option send fewer.
#[must_use]
pub fn frames_of_a_call(socket: &OwnedFd, places: u32) -> u32 {
    let len = size_of::<u32>() as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), (&raw const places).cast());
    // SAFETY: the kernel reads `places`, of this size, which outlives the call.
    let is_set = unsafe { libc::setsockopt(fd, libc::SOL_XDP, FRAMES_OF_A_CALL, value, len) == 0 };
    if is_set { places } else { DEFAULT_FRAMES_OF_A_CALL }
}
