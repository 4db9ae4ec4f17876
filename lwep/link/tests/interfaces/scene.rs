//! Two network namespaces that a veth pair joins, each with a kernel's own address, and what links at its ends do.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use ringway_link::{Buffer, Link, Offload};
use ringway_scenes::namespace::Namespace;
use ringway_scenes::{PATIENCE, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::gettid;

/// The pair: `x0` with 10.78.0.1, and `w0` with 10.78.0.2.
pub struct Scene {
    pub a: Namespace,
    pub b: Namespace,
}

impl Scene {
    pub fn new() -> Scene {
        let scene = Scene { a: Namespace::new(), b: Namespace::new() };
        scene.a.ok("ip", &["link", "add", "x0", "type", "veth", "peer", "name", "w0", "netns", &scene.b.name]);
        for (space, device, address) in [(&scene.a, "x0", "10.78.0.1/24"), (&scene.b, "w0", "10.78.0.2/24")] {
            space.ok("ip", &["addr", "add", address, "dev", device]);
            space.ok("ip", &["link", "set", device, "up"]);
        }
        scene
    }

    /// Frames that `x0` has sent and the kernel has lost before `w0`: a queue of the processor, which all programs share, or of the device
    /// was full (`net.core.netdev_max_backlog`).
    pub fn lost_before_w0(&self) -> u64 {
        let said = self.a.ok("cat", &["/sys/class/net/x0/statistics/tx_dropped"]);
        said.trim().parse().expect("a number")
    }

    /// Lets the kernels' own traffic pass: echo requests, and a TCP connection with data in both directions.
    pub fn kernels_talk(&self) {
        use std::io::{Read, Write};
        self.a.ping(20, &["-i", "0.002", "10.78.0.2"]);
        let listener = self.b.within(|| std::net::TcpListener::bind("10.78.0.2:7000").unwrap());
        let mut near = self.a.within(|| std::net::TcpStream::connect("10.78.0.2:7000").unwrap());
        let (mut far, _) = listener.accept().unwrap();
        let mut echo = [0; 5000];
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut echo).unwrap();
        far.write_all(&echo).unwrap();
        near.read_exact(&mut echo).unwrap();
        assert_eq!(echo, [7; 5000]);
    }
}

/// A frame of `len` bytes of LWEP's EtherType, with bytes that follow from its number.
pub fn frame(to: [u8; 6], from: [u8; 6], len: usize, number: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from[..], &[0x88, 0xb5]].concat();
    frame.extend((14..len).map(|at| (at * 7 + number * 13) as u8));
    frame
}

/// A link with the buffers that its program has.
pub struct Station<L> {
    pub link: L,
    pub buffers: Vec<Buffer>,
    /// Buffers that are exchanged for received frames in turn, with the frame that each has meanwhile and its place.
    kept: VecDeque<(Buffer, usize, Vec<u8>)>,
    received: usize,
    queued: u64,
}

impl<L: Link> Station<L> {
    pub fn new(mut link: L) -> Self {
        let mut buffers = link.take_buffers();
        assert!(link.take_buffers().is_empty());
        let kept = (0..4).map(|_| (buffers.pop().unwrap(), 0, Vec::new())).collect();
        Station { link, buffers, kept, received: 0, queued: 0 }
    }

    pub fn mac(&self) -> [u8; 6] {
        self.link.interface().mac
    }

    /// Queues a frame in the buffer of this number. Returns false if the link does not take it.
    pub fn queue(&mut self, number: usize, frame: &[u8], offload: Option<&Offload>) -> bool {
        let front = self.link.interface().front;
        let buffer = &mut self.buffers[number];
        buffer[front..front + frame.len()].copy_from_slice(frame);
        let is_queued = self.link.send(buffer, frame.len(), offload);
        self.queued += u64::from(is_queued);
        is_queued
    }

    /// Sends a frame, and waits until its buffer is free.
    pub fn send(&mut self, frame: &[u8], offload: Option<&Offload>) {
        assert!(self.queue(0, frame, offload), "{} bytes", frame.len());
        self.drain();
    }

    /// Sends what is queued, and waits until all buffers are free.
    pub fn drain(&mut self) {
        until("the frames are sent", || {
            self.link.flush();
            self.link.sent() == self.queued
        });
    }

    /// Receives the next frame, every second one by exchange.
    pub fn receive(&mut self) -> (Vec<u8>, Option<Offload>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(received) = self.link.peek() {
                let (bytes, offload) = (received.bytes.to_vec(), received.offload);
                self.received += 1;
                if self.received.is_multiple_of(2) {
                    self.link.release();
                } else {
                    let (mut buffer, start, kept) = self.kept.pop_front().unwrap();
                    assert_eq!(&buffer[start..start + kept.len()], kept, "the buffer has had the frame since");
                    let (start, len) = self.link.exchange(&mut buffer);
                    assert_eq!(&buffer[start..start + len], bytes, "the buffer has the frame");
                    self.kept.push_back((buffer, start, bytes.clone()));
                }
                return (bytes, offload);
            }
            assert!(Instant::now() < deadline, "no frame has come");
            self.link.wait(false, Duration::from_secs(1)).unwrap();
        }
    }

    /// Whether the descriptor is readable.
    pub fn is_woken(&self) -> bool {
        let now = Timespec::default();
        poll(&mut [PollFd::from_borrowed_fd(self.link.descriptor().as_fd(), PollFlags::IN)], Some(&now)).unwrap() > 0
    }
}

/// Sends frames of all lengths from one station to the other, and checks them.
pub fn cross<A: Link, B: Link>(from: &mut Station<A>, to: &mut Station<B>, frames: usize) {
    let longest = from.link.interface().longest.min(to.link.interface().longest);
    let lens: Vec<usize> = (0..frames).map(|number| 14 + (number * 37) % (longest - 13)).chain([longest]).collect();
    let (mac, own) = (to.mac(), from.mac());
    for (numbers, lens) in lens.chunks(24).enumerate() {
        for (at, &len) in lens.iter().enumerate() {
            assert!(from.queue(at, &frame(mac, own, len, numbers * 24 + at), None), "{len} bytes");
        }
        from.link.flush();
        for (at, &len) in lens.iter().enumerate() {
            let (got, offload) = to.receive();
            assert!(got == frame(mac, own, len, numbers * 24 + at) && offload.is_none(), "{len} bytes: {got:?}");
        }
        from.drain();
    }
}

/// An IPv4 packet of TCP in an Ethernet frame from the first address to the second, with `payload` bytes. Its checksum is that of the
/// pseudo-header.
pub fn tcp(macs: [[u8; 6]; 2], source: [u8; 4], target: [u8; 4], payload: &[u8]) -> (Vec<u8>, Offload) {
    let mut frame = Vec::new();
    let packet = PacketBuilder::ethernet2(macs[0], macs[1]).ipv4(source, target, 64).tcp(1000, 2000, 1, 1000);
    packet.write(&mut frame, payload).unwrap();
    let words = [&source[..], &target[..], &[0, 6], &(payload.len() as u16 + 20).to_be_bytes()].concat();
    let sum: u32 = words.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[50..52].copy_from_slice(&((sum & 0xffff) as u16 + (sum >> 16) as u16).to_be_bytes());
    (frame, Offload { needs_csum: true, csum_start: 34, csum_offset: 16, ..Offload::default() })
}

/// The payload of a TCP frame whose checksums are right.
pub fn payload(frame: &[u8]) -> &[u8] {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) = (packet.net, packet.transport) else {
        panic!("not TCP over IPv4: {frame:?}")
    };
    let right = tcp.to_header().calc_checksum_ipv4_raw(ip.header().source(), ip.header().destination(), tcp.payload());
    assert_eq!(
        (ip.header().header_checksum(), tcp.checksum()),
        (ip.header().to_header().calc_header_checksum(), right.unwrap())
    );
    &frame[54..frame.len()]
}

/// Runs `work`, which is to wait, on a thread of its own, and returns when that thread sleeps.
pub fn sleeping<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (send, id) = channel();
    let thread = std::thread::spawn(move || {
        send.send(gettid().as_raw_nonzero()).unwrap();
        work()
    });
    let stat = format!("/proc/self/task/{}/stat", id.recv().unwrap());
    until("the thread sleeps", || std::fs::read_to_string(&stat).unwrap().contains(") S "));
    thread
}
