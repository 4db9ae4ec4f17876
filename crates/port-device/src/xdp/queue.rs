//! A queue of a device: an XDP socket that receives, another one that sends, their rings, and the memory of their frames (UMEM).
//!
//! The sending socket is its own, because a poller that sleeps waits for the receiving one: at each frame of a socket that somebody may wait
//! for, the kernel looks for who waits (`docs/decisions/xdp-sockets.md`).
//!
//! The memory is cut into chunks ([`chunk`]). The first [`RECEIVE`] of them are for frames from the device: the kernel has
//! them by the fill ring, and the switch while a batch refers to them. The others are for frames to the device, in the
//! first queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_memory::{Mapping, SharedMemory, View};
use ringway_netdevice::xdp::{
    Consumer, HAS_METADATA, Producer, Queued, Transfer, frames_of_a_call, register, xdp_socket,
};
use rustix::io::Errno;
use rustix::net::bind;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpUmemRegFlags,
};

use crate::kept::unreadable;
use crate::positions::CHUNKS;

/// Chunks for frames from the device. They and those of the other direction take 6 MiB, with zero copy 12 MiB.
pub(super) const RECEIVE: u32 = 2048;
/// Places of the fill ring. The kernel gives a frame before it frees the place of the frame's chunk: with twice as many places as
/// chunks one is always free.
const FILL: u32 = 2 * RECEIVE;
/// Chunks for frames to the device.
pub(super) const TRANSMIT: u32 = 1024;
const _: () = assert!(TRANSMIT as usize == CHUNKS);

/// Bytes of a chunk, a power of two. The kernel leaves 256 of them before a received frame, so that 2,048 take 1,792.
///
/// A device with zero copy may use whole KiB of the rest only (igb, igc). Of a longer frame, igb gives the port both pieces as
/// frames: there a chunk has to take the longest frame.
pub(super) fn chunk(transfer: Transfer) -> usize {
    match transfer {
        Transfer::ZeroCopy => 4096,
        Transfer::Copy => 2048,
    }
}

/// The parts of one queue, without those that send.
pub(super) struct Queue {
    pub(super) socket: OwnedFd,
    pub(super) memory: SharedMemory,
    pub(super) rings: Rings,
    /// Frames may have several pieces (Linux 6.6).
    pub(super) takes_pieces: bool,
    /// Bytes for metadata before each sent piece: [`ringway_netdevice::xdp::METADATA`], or 0 if the kernel or the device takes none.
    pub(super) before: usize,
}

/// The rings of a queue's socket.
pub(super) struct Rings {
    pub(super) receive: Consumer<2>,
    pub(super) fill: Producer<1>,
    pub(super) completion: Consumer<1>,
}

impl Rings {
    /// Maps the rings. Before Linux 6.4 this is possible only before the socket is bound.
    fn map(socket: BorrowedFd<'_>) -> io::Result<Rings> {
        let at = sockopt::xdp_mmap_offsets(socket)?;
        Ok(Rings {
            receive: Consumer::map(socket, XDP_PGOFF_RX_RING, &at.rx, RECEIVE)?,
            fill: Producer::map(socket, XDP_UMEM_PGOFF_FILL_RING, &at.fr, FILL)?,
            completion: Consumer::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, TRANSMIT)?,
        })
    }
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

/// The transmit ring, as the output and as any thread may see it.
pub(super) struct TransmitRing {
    pub(super) filled: Producer<2>,
    pub(super) queued: Queued,
}

/// The sending socket of a queue.
pub(super) struct SendingSocket {
    pub(super) socket: OwnedFd,
    pub(super) ring: TransmitRing,
    pub(super) transfer: Transfer,
    /// Most frames that a call sends in copy mode.
    pub(super) frames_of_a_call: u32,
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
        let socket = xdp_socket()?;
        let Attachment { device, transfer, metadata } = attachment;
        let chunk = chunk(transfer);
        let memory = SharedMemory::create_whole("ringway-frames", bytes(queue, transfer))?;
        let flags = if metadata { HAS_METADATA } else { XdpUmemRegFlags::empty() };
        let before = register(socket.as_fd(), memory.mapping(), chunk, flags)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, FILL)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, TRANSMIT)?;
        sockopt::set_xdp_rx_ring_size(&socket, RECEIVE)?;
        let mut rings = Rings::map(socket.as_fd())?;
        (0..RECEIVE).for_each(|number| rings.fill.put([u64::from(number) * chunk as u64]));
        rings.fill.publish();
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags |= match transfer {
            Transfer::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            Transfer::Copy => SocketAddrXdpFlags::XDP_COPY,
        };
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, takes_pieces);
        bind(&socket, &SocketAddrXdp::new(flags, device, queue))?;
        Ok(Queue { socket, memory, rings, takes_pieces, before })
    }

    /// The queue with this number that a predecessor has opened.
    ///
    /// # Errors
    /// The descriptors are others, or the kernel is older than 6.4.
    pub(super) fn left(
        files: [OwnedFd; 2],
        queue: u32,
        transfer: Transfer,
        takes_pieces: bool,
        before: usize,
    ) -> io::Result<Queue> {
        let [socket, memory] = files;
        let memory = SharedMemory::open(memory, bytes(queue, transfer))?;
        let rings = Rings::map(socket.as_fd())?;
        Ok(Queue { socket, memory, rings, takes_pieces, before })
    }

    /// The descriptors.
    pub(super) fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.memory.file()]
    }

    /// Opens the sending socket of this queue of a device.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub(super) fn sender(&self, device: u32, queue: u32, transfer: Transfer) -> io::Result<SendingSocket> {
        let socket = xdp_socket()?;
        sockopt::set_xdp_tx_ring_size(&socket, TRANSMIT)?;
        let ring = TransmitRing::map(socket.as_fd())?;
        let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, device, queue);
        bind(&socket, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: self.socket.as_fd() })?;
        let frames_of_a_call = frames_of_a_call(&socket, TRANSMIT);
        Ok(SendingSocket { socket, ring, transfer, frames_of_a_call })
    }
}

impl TransmitRing {
    /// Maps the ring. Before Linux 6.4 this is possible only before the socket is bound.
    fn map(socket: BorrowedFd<'_>) -> io::Result<TransmitRing> {
        let at = sockopt::xdp_mmap_offsets(socket)?;
        let filled = Producer::map(socket, XDP_PGOFF_TX_RING, &at.tx, TRANSMIT)?;
        let queued = filled.queued(&at.tx).ok_or_else(|| io::Error::other("the kernel's ring has no aligned words"))?;
        Ok(TransmitRing { filled, queued })
    }
}

impl SendingSocket {
    /// The socket that a predecessor has opened.
    ///
    /// # Errors
    /// The descriptor is another one, or the kernel is older than 6.4.
    pub(super) fn left(socket: OwnedFd, transfer: Transfer, frames_of_a_call: u32) -> io::Result<SendingSocket> {
        if !(1..=TRANSMIT).contains(&frames_of_a_call) {
            return Err(unreadable());
        }
        let ring = TransmitRing::map(socket.as_fd())?;
        Ok(SendingSocket { socket, ring, transfer, frames_of_a_call })
    }
}

/// Bytes of the memory of the queue with this number.
fn bytes(queue: u32, transfer: Transfer) -> usize {
    // The first queue sends.
    let chunks = if queue == 0 { RECEIVE + TRANSMIT } else { RECEIVE };
    chunks as usize * chunk(transfer)
}

/// Returns the bytes at an address that the kernel has named, if they are in the memory.
#[inline]
pub(super) fn piece(memory: &Mapping, address: u64, len: u32) -> Option<View<'_>> {
    memory.view(usize::try_from(address).ok()?, len as usize)
}
