//! A queue of a device: an XDP socket with its four rings, and the memory of its frames (UMEM).
//!
//! The memory is cut into chunks of [`CHUNK`] bytes. The first [`RECEIVE`] of them are for frames from the device: the kernel has
//! them by the fill ring, and the switch while a batch refers to them. The others are for frames to the device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringway_memory::{Mapping, View};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDescOptions, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::metadata::{HAS_METADATA, METADATA};
use super::ring::{Consumer, Producer, Queued};

/// Bytes of a chunk. The kernel leaves 256 bytes before a received frame, so that a chunk takes 1,792.
pub(super) const CHUNK: usize = 2048;
/// Chunks for frames from the device. They and those of the other direction take 6 MiB.
pub(super) const RECEIVE: u32 = 2048;
/// Places of the fill ring. The kernel gives a frame before it frees the place of the frame's chunk: with twice as many places as
/// chunks one is always free.
const FILL: u32 = 2 * RECEIVE;
/// Chunks for frames to the device.
pub(super) const TRANSMIT: u32 = 1024;

/// The frame has metadata (`XDP_TX_METADATA`).
const WITH_METADATA: XdpDescOptions = XdpDescOptions::from_bits_retain(1 << 1);

/// How frames get between the device and the socket's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The device writes and reads the socket's memory.
    ZeroCopy,
    /// The kernel copies each frame.
    Copy,
}

/// The parts of one queue.
pub(super) struct Queue {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) memory: Arc<Mapping>,
    pub(super) receive: Consumer<2>,
    pub(super) fill: Producer<1>,
    pub(super) transmit: Producer<2>,
    pub(super) queued: Queued,
    pub(super) completion: Consumer<1>,
    pub(super) transfer: Transfer,
    /// Frames may have several pieces (Linux 6.6).
    pub(super) takes_pieces: bool,
    /// Bytes for metadata before each sent piece: [`METADATA`], or 0 if the kernel or the device takes none.
    pub(super) before: usize,
}

/// How queues of a device are opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment {
    /// The device's number.
    pub(super) device: u32,
    pub(super) transfer: Transfer,
    /// Sent frames may have metadata.
    pub(super) metadata: bool,
}

impl Queue {
    /// Opens a socket for this queue of a device.
    ///
    /// # Errors
    /// `EINVAL`: the device has no such queue. `EBUSY`: another socket has it. `EOPNOTSUPP`: no transfer of this kind.
    pub(super) fn open(attachment: Attachment, queue: u32) -> io::Result<Queue> {
        match Self::bound(attachment, queue, true) {
            // Before Linux 6.6, or a driver without them.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::OPNOTSUPP)) => {
                Self::bound(attachment, queue, false)
            }
            other => other,
        }
    }

    fn bound(attachment: Attachment, queue: u32, takes_pieces: bool) -> io::Result<Queue> {
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let bytes = (RECEIVE + TRANSMIT) as usize * CHUNK;
        let memory = Arc::new(Mapping::private(bytes)?);
        let Attachment { device, transfer, metadata } = attachment;
        let before = register(socket.as_fd(), &memory, if metadata { HAS_METADATA } else { XdpUmemRegFlags::empty() })?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, FILL)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, TRANSMIT)?;
        sockopt::set_xdp_rx_ring_size(&socket, RECEIVE)?;
        sockopt::set_xdp_tx_ring_size(&socket, TRANSMIT)?;
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        let fd = socket.as_fd();
        let receive = Consumer::map(fd, XDP_PGOFF_RX_RING, &at.rx, RECEIVE)?;
        let mut fill = Producer::map(fd, XDP_UMEM_PGOFF_FILL_RING, &at.fr, FILL)?;
        let transmit = Producer::map(fd, XDP_PGOFF_TX_RING, &at.tx, TRANSMIT)?;
        let queued =
            transmit.queued(&at.tx).ok_or_else(|| io::Error::other("the kernel's ring has no aligned words"))?;
        let completion = Consumer::map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, TRANSMIT)?;
        (0..RECEIVE).for_each(|chunk| fill.put([u64::from(chunk) * CHUNK as u64]));
        fill.publish();
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags |= match transfer {
            Transfer::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            Transfer::Copy => SocketAddrXdpFlags::XDP_COPY,
        };
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, takes_pieces);
        bind(&socket, &SocketAddrXdp::new(flags, device, queue))?;
        let socket = Arc::new(socket);
        Ok(Queue { socket, memory, receive, fill, transmit, queued, completion, transfer, takes_pieces, before })
    }
}

/// Gives the kernel the memory of a socket, with these flags if it knows them. Returns the bytes that it has for metadata before each
/// sent piece.
pub(super) fn register(socket: BorrowedFd<'_>, memory: &Mapping, flags: XdpUmemRegFlags) -> io::Result<usize> {
    let before = if flags.is_empty() { 0 } else { METADATA };
    let whole = memory.whole();
    let registration = XdpUmemReg {
        addr: whole.as_ptr() as u64,
        len: whole.len() as u64,
        chunk_size: CHUNK as u32,
        headroom: 0,
        flags,
        tx_metadata_len: before as u32,
    };
    match sockopt::set_xdp_umem_reg(socket, registration) {
        Err(Errno::INVAL) if before > 0 => register(socket, memory, XdpUmemRegFlags::empty()),
        other => Ok(other.map(|()| before)?),
    }
}

/// An entry of the receive or the transmit ring: `struct xdp_desc`.
pub(super) struct Entry {
    pub(super) address: u64,
    pub(super) len: u32,
    /// The frame's next piece is in the next entry.
    pub(super) continues: bool,
    /// Metadata are before a sent frame's first piece.
    pub(super) has_metadata: bool,
}

impl Entry {
    #[inline]
    pub(super) fn of([address, rest]: [u64; 2]) -> Entry {
        let options = XdpDescOptions::from_bits_retain((rest >> 32) as u32);
        let continues = options.contains(XdpDescOptions::XDP_PKT_CONTD);
        Entry { address, len: rest as u32, continues, has_metadata: options.contains(WITH_METADATA) }
    }

    #[inline]
    pub(super) fn words(&self) -> [u64; 2] {
        let mut options = XdpDescOptions::empty();
        options.set(XdpDescOptions::XDP_PKT_CONTD, self.continues);
        options.set(WITH_METADATA, self.has_metadata);
        [self.address, u64::from(options.bits()) << 32 | u64::from(self.len)]
    }
}

/// Returns the bytes at an address that the kernel has named, if they are in the memory.
#[inline]
pub(super) fn piece(memory: &Mapping, address: u64, len: u32) -> Option<View<'_>> {
    memory.view(usize::try_from(address).ok()?, len as usize)
}
