//! A network interface that the host goes on using, by a packet socket (packet(7)).
//!
//! Frames are sent from the buffers by sendmmsg(2), and received into a ring that the kernel shares: it copies each frame once. A header
//! before each frame says what is left to do for it (`PACKET_VNET_HDR`), so that checksums and segmentation are the kernel's and the NIC's.

mod filter;
mod messages;
mod ring;

use std::cell::Cell;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use messages::Messages;
use ring::Ring;
use ringway_abi::Offload;
use ringway_abi::offload::Gso;
use ringway_lwep::link::{Counts, HEADER, Interface, Link, Received};
use ringway_memory::{Buffer, Mapping};
use ringway_netdevice::{packet, requests};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::host::{self, Found, check_address, ended, find, why_ended};

/// Most bytes of a frame to be segmented: IPv4 gives lengths in 16 bits.
const LONGEST_SEGMENTED: usize = HEADER + u16::MAX as usize;
/// Bytes of sent frames that the kernel may keep for the socket, where it lets this user choose so many.
const SOCKET_BYTES: libc::c_int = 4 << 20;

/// How an interface is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// Most frames that wait to be sent: 1 to 32,768.
    pub slots: u32,
    /// Bytes of a buffer, 128 or more. With an address, 65,549 or more: the kernel joins frames of TCP.
    pub buffer: u32,
    /// Buffers that the program gets.
    pub buffers: u32,
    /// The link's own IPv4 address, which the host must not have: frames of TCP to it are the link's, too.
    pub address: Option<Ipv4Addr>,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self { slots: 512, buffer: 2048, buffers: 1024, address: None }
    }
}

/// A link at a network interface of the host.
pub struct PacketLink {
    socket: OwnedFd,
    /// Becomes readable with the socket.
    ready: OwnedFd,
    /// `ready` has been told to wait for room, too.
    waits_for_room: bool,
    interface: Interface,
    /// The interface's number.
    index: u32,
    memory: Arc<Mapping>,
    buffers: Vec<Buffer>,
    /// A ring of frames that wait to be sent.
    outgoing: Messages,
    slots: usize,
    /// Frames queued since the link was opened, and those that the kernel has taken or refused.
    queued: u64,
    sent: u64,
    ring: Ring,
    counts: Counts,
    lost: Cell<u64>,
    ended: Option<&'static str>,
}

impl PacketLink {
    /// Opens an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface cannot be used. The error says why, and what would help.
    pub fn open(interface: &str, options: &PacketOptions) -> io::Result<Self> {
        let (slots, buffer) = (options.slots as usize, options.buffer as usize);
        check_options(options)?;
        let failed = |what: &str, error: &io::Error| requests::cannot(interface, what, &help(error), error.kind());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol no frame comes before `bind`.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
        let socket = socket.map_err(|error| failed("open a packet socket for it", &error.into()))?;
        let Found { index, mac, mtu } = find(interface, socket.as_fd())?;
        let longest = buffer.min(mtu + HEADER);
        let set_up = || {
            packet::filter(&socket, &filter::filter(options.address))?;
            packet::set(&socket, libc::SOL_PACKET, packet::PACKET_IGNORE_OUTGOING, &1)?;
            packet::set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
            packet::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SOCKET_BYTES)
                .or_else(|_| packet::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SOCKET_BYTES))?;
            let ring = Ring::open(&socket, if options.address.is_some() { LONGEST_SEGMENTED } else { longest })?;
            packet::bind(&socket, index, libc::ETH_P_ALL as u16)?;
            let ready = epoll::create(CreateFlags::CLOEXEC)?;
            epoll::add(&ready, &socket, EventData::new_u64(0), EventFlags::IN)?;
            Ok((ready, ring, Arc::new(Mapping::private(options.buffers as usize * buffer)?)))
        };
        let (ready, ring, memory) = set_up().map_err(|error| failed("attach to it", &error))?;
        // SAFETY: the mapping is this link's own, and the buffers do not overlap.
        let part = |number| unsafe { Buffer::new(&memory, number, number as usize * buffer, options.buffer) };
        Ok(Self {
            socket,
            ready,
            waits_for_room: false,
            interface: Interface {
                name: interface.to_owned(),
                mac,
                longest,
                segmented: buffer.min(LONGEST_SEGMENTED),
                checksums: true,
                front: 0,
                buffer,
                places: 0,
                holds: 0,
            },
            index,
            buffers: (0..options.buffers).filter_map(part).collect(),
            memory,
            outgoing: Messages::new(slots),
            slots,
            queued: 0,
            sent: 0,
            ring,
            counts: Counts::default(),
            lost: Cell::new(0),
            ended: None,
        })
    }

    fn waiting(&self) -> usize {
        (self.queued - self.sent) as usize
    }

    /// Passes the next frame that waits, which the kernel has refused.
    fn refuse(&mut self) {
        self.sent += 1;
        self.counts.unsent += 1;
    }

    /// Looks whether the interface is there and up. If not, the link ends: nothing waits any more.
    #[cold]
    fn look(&mut self) {
        // An error of a moment ago keeps nobody awake.
        let _ = sockopt::socket_error(&self.socket);
        // An interface that goes is down first.
        if let Some(why) = why_ended(self.index, self.socket.as_fd()) {
            self.ended = Some(why);
            (0..self.waiting()).for_each(|_| self.refuse());
        }
    }

    /// Passes frames that are longer than a buffer or not whole. Returns what is left to do for the next other one.
    #[inline]
    fn find(&mut self) -> Option<Option<Offload>> {
        while self.ring.has_frame() {
            let found = self.ring.frame().filter(|arrived| arrived.frame.len() <= self.interface.buffer);
            if let Some(Ok(offload)) = found.map(|arrived| left_to_do(arrived.header)) {
                return Some(offload);
            }
            self.counts.dropped += 1;
            self.ring.release();
        }
        None
    }
}

impl Link for PacketLink {
    #[inline]
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    #[inline]
    fn room(&mut self) -> usize {
        if self.waiting() == self.slots {
            self.flush();
        }
        self.slots - self.waiting()
    }

    #[inline]
    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        let is_possible = match offload {
            _ if self.ended.is_some() || len < HEADER => false,
            None => len <= self.interface.longest,
            Some(Offload { gso: Gso::None, .. }) => len <= self.interface.longest,
            Some(Offload { gso: Gso::Tcp4, .. }) => len <= self.interface.segmented,
            Some(_) => false,
        };
        if !is_possible || !buffer.is_of(&self.memory) || len > buffer.len() || self.waiting() == self.slots {
            return false;
        }
        let at = (self.queued % self.slots as u64) as usize;
        self.outgoing.set_frame(at, buffer.start(), len);
        self.outgoing.set_header(at, Offload::encode(offload));
        self.queued += 1;
        true
    }

    fn flush(&mut self) {
        while self.waiting() > 0 {
            let at = (self.sent % self.slots as u64) as usize;
            let range = at..self.slots.min(at + self.waiting());
            self.counts.kicks += 1;
            // SAFETY: the frames that wait are in buffers of `memory`, which this link keeps.
            match unsafe { self.outgoing.send(&self.socket, range) } {
                Ok(count) => self.sent += count as u64,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN | Errno::INTR) => return,
                    Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => {
                        self.look();
                        // The device was down, and is up again: so much was the error of a frame.
                        if self.ended.is_none() {
                            self.refuse();
                        }
                    }
                    // The device's queue is full, or its MTU has become smaller.
                    _ => self.refuse(),
                },
            }
        }
    }

    #[inline]
    fn sent(&mut self) -> u64 {
        self.sent
    }

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        let offload = self.find()?;
        Some(Received { bytes: self.ring.frame()?.frame, offload })
    }

    #[inline]
    fn release(&mut self) {
        if self.ring.has_frame() {
            self.ring.release();
        }
    }

    #[inline]
    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        let Some(arrived) = self.ring.frame() else { return (0, 0) };
        let len = arrived.frame.len().min(spare.len());
        spare[..len].copy_from_slice(&arrived.frame[..len]);
        self.ring.release();
        (0, len)
    }

    fn want(&mut self, room: bool) -> bool {
        self.flush();
        if self.ended.is_some() || self.find().is_some() || (room && self.waiting() < self.slots) {
            return true;
        }
        let waits = self.waiting() > 0;
        if waits != self.waits_for_room {
            let flags = if waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            self.waits_for_room =
                epoll::modify(&self.ready, &self.socket, EventData::new_u64(0), flags).is_ok() && waits;
        }
        false
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn awake(&mut self) {
        self.counts.calls += 1;
        self.flush();
    }

    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()> {
        host::wait(self, room, timeout)
    }

    fn check(&mut self) -> io::Result<()> {
        self.look();
        self.ended.map_or(Ok(()), |why| Err(ended(&self.interface.name, why)))
    }

    fn counts(&self) -> Counts {
        self.lost.set(self.lost.get() + packet::take_lost(&self.socket));
        Counts { lost: self.lost.get(), ..self.counts }
    }
}

fn check_options(options: &PacketOptions) -> io::Result<()> {
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let PacketOptions { slots, buffer, address, .. } = *options;
    if !(1..=32_768).contains(&slots) {
        return wrong(format!("{slots} slots: a packet link takes 1 to 32768"));
    }
    let least = if address.is_some() { LONGEST_SEGMENTED as u32 } else { 128 };
    if buffer < least {
        return wrong(format!("buffers of {buffer} bytes are too small for this packet link: use {least} or more"));
    }
    address.map_or(Ok(()), check_address)
}

/// Says what to do about an error of the kernel.
fn help(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "this user may not: packet sockets need CAP_NET_RAW (root has it; for a program: setcap cap_net_raw+ep)"
                .to_owned()
        }
        Some(Errno::NOMEM) => "the kernel has no memory: use fewer or smaller buffers".to_owned(),
        _ => error.to_string(),
    }
}

/// Reads the header of a received frame.
#[inline]
fn left_to_do(mut header: [u8; Offload::BYTES]) -> Result<Option<Offload>, ringway_abi::offload::BadOffload> {
    const NEEDS_CSUM: u8 = 1;
    let is_left = header[0] & NEEDS_CSUM != 0;
    // Frames that a NIC has joined have their checksum.
    header[0] |= if header[1] == 0 { 0 } else { NEEDS_CSUM };
    Ok(Offload::decode(&header)?.map(|offload| Offload { needs_csum: is_left, ..offload }))
}
