//! Frames that the kernel takes from a socket of a veth device, and gives a UDP socket at its other end.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use etherparse::PacketBuilder;
use ringway_memory::{Mapping, View};
use ringway_netdevice::requests;
use ringway_netdevice::xdp::{HAS_METADATA, METADATA, Transfer, register};
use ringway_port::testing::{program, send_from_far_end, visit_until_asleep_in_memory, with_pair};
use ringway_switch::{BatchStorage, Bell, CallReason, Counters, DropReason, Offload, PortFault};
use ringway_testing::skip::note;
use ringway_testing::{PATIENCE, until};
use rustix::net::xdp::XdpUmemRegFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::output::{Device, XdpOutput};
use super::queue::{Attachment, Queue, RECEIVE, Rings, TRANSMIT, chunk};
use super::sending::{Sending, XdpBell};
use crate::device_closing::unclosed_devices;
use crate::positions::Positions;

/// A datagram of `len` bytes for the far end, all of them `byte`, whose checksum is the sum of the pseudo-header.
fn datagram(len: usize, byte: u8) -> (Vec<u8>, Offload) {
    let (source, target) = ([10, 79, 0, 2], [10, 79, 0, 1]);
    let mut frame = Vec::new();
    let packet =
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]).ipv4(source, target, 64).udp(1000, 2000);
    packet.write(&mut frame, &vec![byte; len]).expect("a frame");
    let words = [&source[..], &target[..], &[0, 17], &(len as u16 + 8).to_be_bytes()].concat();
    let sum: u32 = words.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    frame[40..42].copy_from_slice(&((sum >> 16) as u16 + sum as u16).to_be_bytes());
    (frame, Offload { needs_csum: true, csum_start: 34, csum_offset: 6, ..Offload::default() })
}

/// The sending half of a port, and the socket at the other end.
struct Sender {
    output: XdpOutput,
    bell: XdpBell,
    memory: Arc<Mapping>,
    far: UdpSocket,
    _receiving: OwnedFd,
}

impl Sender {
    /// Returns nothing if this kernel takes no metadata.
    fn new() -> Option<Sender> {
        let requests = requests::socket().expect("a socket");
        let device = requests::index("x0", requests.as_fd()).expect("the device");
        let queue = Queue::open(Attachment { device, transfer: Transfer::Copy, metadata: true }, 0).expect("a queue");
        let sender = queue.sender(device, 0, Transfer::Copy).expect("a sending socket");
        let Queue { socket, memory, rings: Rings { completion, .. }, takes_pieces, before } = queue;
        let memory = Arc::clone(memory.mapping());
        if before == 0 {
            note("this kernel takes no metadata");
            return None;
        }
        let (sending, transmit) = Sending::new(sender);
        let sending = Arc::new(sending);
        let is_running = Arc::new(AtomicBool::new(true));
        let device = Device { longest: Arc::new(AtomicUsize::new(9018)), is_running, takes_pieces, before };
        let chunks = Positions::new().and_then(|positions| positions.chunks()).expect("positions");
        let output = XdpOutput::new(Arc::clone(&sending), Arc::clone(&memory), (transmit, completion), chunks, device);
        let far = UdpSocket::bind("10.79.0.1:2000").expect("a socket");
        far.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Some(Sender { output, bell: XdpBell(sending), memory, far, _receiving: socket })
    }

    /// Queues a frame. Returns the address of its metadata.
    fn queue(&mut self, (mut frame, offload): (Vec<u8>, Offload)) -> usize {
        let mut batch = BatchStorage::new(1).into_batch();
        let len = frame.len();
        batch.push_offloaded(View::private(&mut frame), len, offload);
        self.output.reclaim();
        let chunk = self.output.next_chunk();
        assert_eq!(self.output.queue(&batch.frame(0), 9018, &mut false), Ok(()));
        chunk as usize
    }

    /// Has the kernel send until nothing waits.
    fn send(&mut self) {
        self.output.ring.publish();
        until("the kernel takes the frames", || {
            self.bell.ring(CallReason::Frames);
            self.bell.0.queued.untold() == 0
        });
    }

    /// Returns the length and the first byte of the next datagram.
    fn receive(&self) -> (usize, u8) {
        let mut bytes = [0; 9000];
        let len = self.far.recv(&mut bytes).expect("a datagram");
        (len, bytes[0])
    }
}

#[test]
fn the_far_stack_takes_datagrams_of_all_lengths_whose_checksums_are_left_to_the_device() {
    with_pair(|| {
        let Some(mut sender) = Sender::new() else { return };
        // With `off` the kernel writes the checksums on the way to the device, and the far stack checks them.
        for left in ["on", "off"] {
            program("ethtool", &format!("-K x0 tx {left}"));
            // The longest pieces have 2,024 bytes with 42 bytes of headers, and would have 2,048 without metadata.
            for len in (2020 - 42..=2060 - 42).chain([1, 18, 1472, 4006, 4007, 8958]) {
                sender.queue(datagram(len, len as u8));
                sender.send();
                assert_eq!(sender.receive(), (len, len as u8), "tx {left}");
            }
        }
    });
}

#[test]
fn a_checksum_that_the_far_end_could_not_recognize_is_written() {
    with_pair(|| {
        let Some(mut sender) = Sender::new() else { return };
        let (mut frame, offload) = datagram(1000, 7);
        // GRE with a checksum (RFC 2784).
        (frame[23], frame[34], frame[35]) = (47, 0x80, 0);
        frame[36..42].fill(0);
        let len = frame.len();
        let chunk = sender.queue((frame, Offload { csum_offset: 4, ..offload }));
        let metadata = sender.memory.view(chunk, METADATA).expect("metadata");
        assert_eq!(metadata.first_word(), Some(0), "it asks for nothing");
        let packet = sender.memory.view(chunk + METADATA + 34, len - 34).expect("the packet");
        assert_eq!(packet.ones_sum(), 0xffff);
    });
}

#[test]
fn a_frame_that_the_kernel_refuses_ends_the_port_with_what_waited() {
    with_pair(|| {
        let counters = Counters::default();
        let Some(mut sender) = Sender::new() else { return };
        let chunk = sender.queue(datagram(100, 1));
        let metadata = sender.memory.view(chunk, METADATA).expect("metadata");
        assert_eq!(metadata.first_word(), Some(2), "it asks for a checksum");
        metadata.put(8, &u16::MAX.to_ne_bytes());
        sender.queue(datagram(5000, 2));
        sender.output.ring.publish();
        sender.bell.ring(CallReason::Frames);
        assert_eq!(sender.output.is_down(&counters), Err(PortFault::DeviceStalled));
        assert_eq!(counters.read().dropped(DropReason::ReceiverDown), 2);
    });
}

#[test]
fn one_call_of_the_bell_passes_all_frames_that_were_cancelled() {
    with_pair(|| {
        let counters = Counters::default();
        let Some(mut sender) = Sender::new() else { return };
        for _ in 0..1000 {
            sender.queue(datagram(100, 1));
        }
        sender.output.ring.publish();
        program("ip", "link set x0 down");
        sender.bell.ring(CallReason::Frames);
        assert_eq!(sender.output.is_down(&counters), Ok(true));
        assert_eq!(counters.read().dropped(DropReason::ReceiverDown), 1000);
        program("ip", "link set x0 up");
        until("the device is up", || sender.output.is_down(&counters) == Ok(false));
        sender.queue(datagram(100, 2));
        sender.output.ring.publish();
        sender.bell.ring(CallReason::Frames);
        assert_eq!(sender.bell.0.queued.untold(), 0);
        assert_eq!(sender.receive(), (100, 2));
    });
}

#[test]
fn a_kernel_that_does_not_know_the_flag_gets_the_memory_without_metadata() {
    let socket = match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(socket) => socket,
        Err(error) => return note(format!("no XDP socket: {error}")),
    };
    let chunk = chunk(Transfer::Copy);
    let memory = Mapping::private((RECEIVE + TRANSMIT) as usize * chunk).expect("memory");
    let unknown = HAS_METADATA | XdpUmemRegFlags::from_bits_retain(1 << 30);
    match register(socket.as_fd(), &memory, chunk, unknown) {
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => note("RLIMIT_MEMLOCK is too small"),
        before => assert_eq!(before.expect("the kernel has the memory"), 0),
    }
}

#[test]
fn a_device_with_frames_is_pending_until_all_are_taken() {
    with_pair(|| {
        for mode in [super::Mode::Copy, super::Mode::Generic] {
            let settings = super::Settings { device: "x0".to_owned(), mode, queues: None, host: false };
            let mut input = None;
            // The kernel frees the queue of the socket before when it comes to it.
            until("a port", || match super::open(&settings, &ringway_keeper::Link::default()) {
                Ok(port) => {
                    input = Some(port.sides.input);
                    true
                }
                Err(why) if why.to_string().contains("another socket has its queue 0") => false,
                Err(why) => panic!("{why}"),
            });
            let mut input = input.expect("it was opened");
            send_from_far_end(5);
            visit_until_asleep_in_memory(&mut *input, 5);
            drop(input);
            until("it is closed", || unclosed_devices() == 0);
        }
    });
}
