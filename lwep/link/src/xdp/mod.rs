//! A queue of a network interface that the host goes on using, by AF_XDP (Linux, Documentation/networking/af_xdp.rst).
//!
//! The buffers are the socket's memory (UMEM), a chunk each: frames are sent from there and received into there, by the device itself
//! where its driver has zero copy, otherwise by one copy of the kernel's. A program in the kernel gives the socket the link's frames, and
//! the host all others. The kernel removes the program with its last descriptor: however this process ends, the host has them all.
//!
//! Frames of the link that arrive at other queues stay with the host. Devices put frames that are not IP into their first queue; for
//! others see "ethtool -N" and "ethtool -L".

mod checksum;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use checksum::checksum_left;
use ringway_abi::Offload;
use ringway_lwep::link::{Counts, ETHERTYPE, HEADER, Interface, Link, Received};
use ringway_memory::{Buffer, Mapping};
use ringway_netdevice::xdp::{Entry, Freed, Mode, Transfer, help};
use ringway_netdevice::{packet, requests};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt};
use socket::{Request, Socket};

use crate::host::{self, Found, check_address, ended, find, why_ended};

/// Bytes that the kernel leaves before a received frame (`XDP_PACKET_HEADROOM`).
const BEFORE: usize = 256;
/// Bytes of a chunk with which zero copy is tried: of smaller ones, some devices use too little for a frame (igb, igc).
const ZERO_COPY_CHUNK: u32 = 4096;
/// Drivers of virtual devices, whose frames may come from this kernel with checksums left to do.
const LOCAL_DRIVERS: [&str; 2] = ["veth", "tun"];
/// Longest wait for the queue of a closed socket.
const FREED_WITHIN: Duration = Duration::from_secs(1);

/// How a queue is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// Places of each ring, a power of two: 64 to 32,768.
    pub slots: u32,
    /// Bytes of a buffer: 2,048 or 4,096. Frames have up to 256 bytes less. Zero copy needs 4,096.
    pub buffer: u32,
    /// Buffers that the program gets.
    pub buffers: u32,
    /// The link's own IPv4 address, which the host must not have: frames of TCP to it are the link's, too.
    pub address: Option<Ipv4Addr>,
    /// How frames get from the device to the buffers.
    pub mode: Mode,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self { slots: 512, buffer: 2048, buffers: 1024, address: None, mode: Mode::Auto }
    }
}

/// A link at a queue of a network interface.
pub struct XdpLink {
    socket: Socket,
    /// Has an error when the interface is down or gone. It receives nothing.
    watch: OwnedFd,
    /// Becomes readable with one of both.
    ready: OwnedFd,
    waits_for_room: bool,
    mode: Mode,
    interface: Interface,
    /// The interface's number.
    index: u32,
    is_local: bool,
    memory: Arc<Mapping>,
    buffers: Vec<Buffer>,
    /// By chunk: the buffers that are not the program's.
    places: Vec<Option<Buffer>>,
    slots: usize,
    /// Received frames that were counted and not yet released.
    known: usize,
    /// The chunks of frames that the device may still read, in order, and by chunk how many of its frames the device has sent since.
    outstanding: VecDeque<u32>,
    completed: Vec<u32>,
    sent: u64,
    counts: Counts,
    ended: Option<&'static str>,
}

impl XdpLink {
    /// Opens a queue of an interface in the calling thread's network namespace.
    ///
    /// # Errors
    /// The queue cannot be used. The error says why, and what would help.
    pub fn open(interface: &str, queue: u32, options: &XdpOptions) -> io::Result<Self> {
        check_options(options)?;
        let &XdpOptions { slots, buffer, buffers, address, mode } = options;
        let chunk = buffer as usize;
        let failed = |what: &str, error: &io::Error| requests::cannot(interface, what, &help(error), error.kind());
        let requests = requests::socket()?;
        let Found { index, mac, mtu } = find(interface, requests.as_fd())?;
        let driver = requests::driver(interface, requests.as_fd()).unwrap_or_default();
        let freed = Freed::within(FREED_WITHIN);
        let request = Request { interface, device: index, queue, slots, chunk, address, freed };
        let memory = Arc::new(Mapping::private((slots + buffers) as usize * chunk)?);
        let (mode, socket) = open_mode(request, &memory, mode).map_err(|error| failed("attach to it", &error))?;
        let watch = watch(index).map_err(|error| failed("watch it", &error))?;
        let ready = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&ready, &socket.fd, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&ready, &watch, EventData::new_u64(0), EventFlags::empty())?;
        // SAFETY: the mapping is this link's own, and the buffers do not overlap. The kernel writes only to those that it was given by the
        // fill ring: they are in `places`, and nobody reads or writes them before the kernel has given them back.
        let part = |number: u32| unsafe { Buffer::new(&memory, number, number as usize * chunk, buffer) };
        let mut places: Vec<Option<Buffer>> = (0..slots).map(part).collect();
        places.resize_with((slots + buffers) as usize, || None);
        Ok(Self {
            socket,
            watch,
            ready,
            waits_for_room: false,
            mode,
            interface: Interface {
                name: interface.to_owned(),
                mac,
                longest: (chunk - BEFORE).min(mtu + HEADER),
                segmented: 0,
                checksums: false,
                front: 0,
                buffer: chunk,
                places: 0,
                holds: 0,
            },
            index,
            is_local: mode == Mode::Generic || LOCAL_DRIVERS.contains(&driver.as_str()),
            buffers: (slots..slots + buffers).filter_map(part).collect(),
            completed: vec![0; places.len()],
            places,
            memory,
            slots: slots as usize,
            known: 0,
            outstanding: VecDeque::with_capacity(2 * slots as usize),
            sent: 0,
            counts: Counts::default(),
            ended: None,
        })
    }

    /// Returns how frames get from the device to the buffers.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Looks whether the interface is there and up. If not, the link ends: the device reads nothing any more.
    #[cold]
    fn look(&mut self) {
        // An error of a moment ago keeps nobody awake.
        let _ = sockopt::socket_error(&self.watch);
        // An interface that goes is down first.
        if let Some(why) = why_ended(self.index, self.watch.as_fd()) {
            self.ended = Some(why);
            let count = self.outstanding.drain(..).count() as u64;
            self.sent += count;
            self.counts.unsent += count;
        }
    }

    /// Takes note of frames that the device has sent.
    #[inline]
    fn reclaim(&mut self) {
        let count = self.socket.completion.available();
        for entry in 0..count {
            let [address] = self.socket.completion.peek(entry);
            if let Some(completed) = self.completed.get_mut(address as usize / self.interface.buffer) {
                *completed += 1;
            }
        }
        self.socket.completion.advance(count);
        self.socket.completion.release();
        while let Some(&chunk) = self.outstanding.front()
            && self.completed[chunk as usize] > 0
        {
            self.completed[chunk as usize] -= 1;
            self.outstanding.pop_front();
            self.sent += 1;
        }
    }

    /// Returns how many frames the kernel has not taken.
    #[inline]
    fn waiting(&mut self) -> usize {
        self.slots - self.socket.transmit.free()
    }

    /// Has the kernel take what waits. In copy mode a call takes some frames, with zero copy it wakes the driver.
    fn kick(&mut self) {
        let (waiting, mut taken) = (self.waiting(), 0);
        // Not all kernels say after each call how many they have sent.
        while taken < waiting && self.waiting() > 0 && self.socket.transmit.needs_wakeup() {
            self.counts.kicks += 1;
            match send(&self.socket.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) if self.socket.transfer == Transfer::ZeroCopy => return,
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => taken += self.socket.frames_of_a_call as usize,
                // The kernel has taken a frame that the device did not take: it has no carrier.
                Err(Errno::BUSY) if self.socket.transfer == Transfer::Copy => {
                    self.counts.unsent += 1;
                    taken += 1;
                }
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => return self.look(),
                // The device has no room.
                Err(_) => return,
            }
        }
    }

    /// Returns the entry of the next frame.
    #[inline]
    fn find(&mut self) -> Option<Entry> {
        if self.known == 0 {
            self.give_back();
            self.known = self.socket.receive.available();
        }
        (self.known > 0).then(|| Entry::of(self.socket.receive.peek(0)))
    }

    /// Gives the kernel the chunks of released frames.
    #[inline]
    fn give_back(&mut self) {
        self.socket.receive.release();
        self.socket.fill.publish();
        // A driver may have asked to be woken after the last chunks were given back.
        if self.socket.fill.needs_wakeup() {
            self.counts.kicks += 1;
            // An error shows when the interface is looked at.
            let _ = recv(&self.socket.fd, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Passes the next frame, in whose place the kernel gets this chunk.
    #[inline]
    fn pass(&mut self, chunk: u32) {
        // There are twice as many places as chunks.
        self.socket.fill.put([u64::from(chunk) * self.interface.buffer as u64]);
        self.socket.receive.advance(1);
        self.known -= 1;
    }

    fn chunk_of(&self, entry: &Entry) -> (usize, usize) {
        let (address, chunk) = (entry.address as usize, self.interface.buffer);
        (address / chunk, address % chunk)
    }
}

impl Link for XdpLink {
    #[inline]
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    #[inline]
    fn room(&mut self) -> usize {
        self.reclaim();
        self.socket.transmit.free().min((2 * self.slots).saturating_sub(self.outstanding.len()))
    }

    #[inline]
    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        let is_possible = offload.is_none() && (HEADER..=self.interface.longest).contains(&len);
        if !is_possible || self.ended.is_some() || !buffer.is_of(&self.memory) || self.room() == 0 {
            return false;
        }
        let chunk = buffer.index();
        let address = u64::from(chunk) * self.interface.buffer as u64;
        self.socket.transmit.put(Entry { address, len: len as u32, continues: false, has_metadata: false }.words());
        self.outstanding.push_back(chunk);
        true
    }

    fn flush(&mut self) {
        self.socket.transmit.publish();
        if self.ended.is_none() {
            self.kick();
        }
    }

    #[inline]
    fn sent(&mut self) -> u64 {
        self.reclaim();
        self.sent
    }

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        loop {
            let entry = self.find()?;
            let (chunk, start) = self.chunk_of(&entry);
            let whole = !entry.continues && start + entry.len as usize <= self.interface.buffer;
            if whole && self.places.get(chunk).is_some_and(Option::is_some) {
                break;
            }
            // Not a frame of this link's memory: the kernel gives none.
            self.counts.dropped += 1;
            self.socket.receive.advance(1);
            self.known -= 1;
        }
        let entry = self.find()?;
        let (chunk, start) = self.chunk_of(&entry);
        let bytes = self.places[chunk].as_ref()?.get(start..start + entry.len as usize)?;
        Some(Received { bytes, offload: if self.is_local { checksum_left(bytes) } else { None } })
    }

    #[inline]
    fn release(&mut self) {
        if self.known > 0 {
            let entry = Entry::of(self.socket.receive.peek(0));
            let (chunk, _) = self.chunk_of(&entry);
            self.pass(chunk as u32);
        }
    }

    #[inline]
    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        if self.known == 0 || !spare.is_of(&self.memory) {
            return (0, 0);
        }
        let entry = Entry::of(self.socket.receive.peek(0));
        let (chunk, start) = self.chunk_of(&entry);
        let Some(mut place) = self.places.get_mut(chunk).and_then(Option::take) else { return (0, 0) };
        std::mem::swap(&mut place, spare);
        let given = place.index();
        self.places[given as usize] = Some(place);
        self.pass(given);
        (start, entry.len as usize)
    }

    fn want(&mut self, room: bool) -> bool {
        self.flush();
        if self.ended.is_some() || self.find().is_some() || (room && self.room() > 0) {
            return true;
        }
        // What the device had no room for is tried again: nothing tells when it has.
        let is_refused = self.socket.transfer == Transfer::Copy && self.waiting() > 0;
        if room != self.waits_for_room {
            let flags = if room { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let is_set = epoll::modify(&self.ready, &self.socket.fd, EventData::new_u64(0), flags).is_ok();
            self.waits_for_room = is_set && room;
        }
        is_refused
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn awake(&mut self) {
        self.counts.calls += 1;
    }

    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()> {
        host::wait(self, room, timeout)
    }

    fn check(&mut self) -> io::Result<()> {
        self.look();
        self.ended.map_or(Ok(()), |why| Err(ended(&self.interface.name, why)))
    }

    fn counts(&self) -> Counts {
        let lost =
            sockopt::xdp_statistics(&self.socket.fd).map_or(0, |now| now.rx_dropped + now.rx_ring_full.unwrap_or(0));
        Counts { lost, ..self.counts }
    }
}

/// Opens a socket in the first mode that the device has.
fn open_mode(request: Request<'_>, memory: &Arc<Mapping>, mode: Mode) -> io::Result<(Mode, Socket)> {
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for &(tried, place, transfer) in mode.tries() {
        if mode == Mode::Auto && transfer == Transfer::ZeroCopy && request.chunk < ZERO_COPY_CHUNK as usize {
            continue;
        }
        match Socket::open(request, memory, place, transfer) {
            Ok(socket) => return Ok((tried, socket)),
            Err(error) => last = error,
        }
        // Another mode would be refused, too. It may need less memory.
        if matches!(Errno::from_io_error(&last), None | Some(Errno::PERM)) {
            break;
        }
    }
    let no_queue =
        format!("it has no queue {}, or not this mode: see \"ethtool -l {}\"", request.queue, request.interface);
    Err(match Errno::from_io_error(&last) {
        Some(Errno::INVAL | Errno::OPNOTSUPP) => io::Error::new(io::ErrorKind::Unsupported, no_queue),
        _ => last,
    })
}

/// Opens a packet socket that receives nothing, and has an error when the interface goes down.
fn watch(index: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let drop_all = libc::sock_filter { code: libc::BPF_RET as u16, jt: 0, jf: 0, k: 0 };
    packet::filter(&socket, &[drop_all])?;
    // The kernel asks the filter for frames of this protocol alone.
    packet::bind(&socket, index, ETHERTYPE)?;
    Ok(socket)
}

fn check_options(options: &XdpOptions) -> io::Result<()> {
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let XdpOptions { slots, buffer, address, mode, .. } = *options;
    if !(64..=32_768).contains(&slots) || !slots.is_power_of_two() {
        return wrong(format!("{slots} slots: an XDP link takes a power of two, 64 to 32768"));
    }
    if !matches!(buffer, 2048 | 4096) {
        return wrong(format!("buffers of {buffer} bytes: an XDP link takes 2048 or 4096"));
    }
    if mode == Mode::ZeroCopy && buffer < ZERO_COPY_CHUNK {
        return wrong(format!("buffers of {buffer} bytes: zero copy takes {ZERO_COPY_CHUNK}"));
    }
    address.map_or(Ok(()), check_address)
}
