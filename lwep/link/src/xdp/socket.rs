//! A socket at one queue of an interface, and its rings.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_lwep::link::ETHERTYPE;
use ringway_memory::Mapping;
use ringway_netdevice::xdp::{
    Attached, Consumer, Freed, Host, Place, Producer, Sockets, Transfer, frames_of_a_call, other_program, register,
    xdp_socket,
};
use rustix::net::bind;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpUmemRegFlags,
};

/// What a socket is opened with.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) interface: &'a str,
    pub(super) device: u32,
    pub(super) queue: u32,
    /// Places of the receive and of the transmit ring.
    pub(super) slots: u32,
    /// Bytes of a chunk.
    pub(super) chunk: usize,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) freed: Freed,
}

/// A socket that gets its frames from the queue.
pub(super) struct Socket {
    // Dropped first: the host has its frames before the socket is closed.
    _attached: Attached,
    pub(super) fd: OwnedFd,
    pub(super) receive: Consumer<2>,
    pub(super) fill: Producer<1>,
    pub(super) transmit: Producer<2>,
    pub(super) completion: Consumer<1>,
    pub(super) transfer: Transfer,
    /// Most frames that a call sends in copy mode.
    pub(super) frames_of_a_call: u32,
}

impl Socket {
    /// Opens a socket over this memory, whose first chunks the kernel gets for received frames, as many as there are slots.
    pub(super) fn open(
        request: Request<'_>,
        memory: &Arc<Mapping>,
        place: Place,
        transfer: Transfer,
    ) -> io::Result<Self> {
        let Request { interface, device, queue, slots, chunk, address, freed } = request;
        let bound = || {
            let fd = xdp_socket()?;
            register(fd.as_fd(), memory, chunk, XdpUmemRegFlags::empty())?;
            // The kernel gives a frame before it frees the place of the frame's chunk.
            sockopt::set_xdp_umem_fill_ring_size(&fd, 2 * slots)?;
            // Room for frames that the device has not sent beside those of the transmit ring.
            sockopt::set_xdp_umem_completion_ring_size(&fd, 2 * slots)?;
            sockopt::set_xdp_rx_ring_size(&fd, slots)?;
            sockopt::set_xdp_tx_ring_size(&fd, slots)?;
            let at = sockopt::xdp_mmap_offsets(&fd)?;
            let receive = Consumer::map(fd.as_fd(), XDP_PGOFF_RX_RING, &at.rx, slots)?;
            let transmit = Producer::map(fd.as_fd(), XDP_PGOFF_TX_RING, &at.tx, slots)?;
            let mut fill = Producer::map(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &at.fr, 2 * slots)?;
            let completion = Consumer::map(fd.as_fd(), XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, 2 * slots)?;
            (0..slots).for_each(|number| fill.put([u64::from(number) * chunk as u64]));
            fill.publish();
            let flags = match transfer {
                Transfer::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
                Transfer::Copy => SocketAddrXdpFlags::XDP_COPY,
            };
            bind(&fd, &SocketAddrXdp::new(flags | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, device, queue))?;
            Ok((fd, receive, fill, transmit, completion))
        };
        let (fd, receive, fill, transmit, completion) = freed.open(queue, bound)?;
        let sockets = Sockets::new(queue + 1)?;
        sockets.set(queue, fd.as_fd())?;
        let host = Host::KeepsAllBut { ethertype: ETHERTYPE, address };
        let attached = Attached::new(device, &sockets, host, place).map_err(|error| other_program(interface, error))?;
        let frames_of_a_call = frames_of_a_call(&fd, slots);
        Ok(Socket { _attached: attached, fd, receive, fill, transmit, completion, transfer, frames_of_a_call })
    }
}
