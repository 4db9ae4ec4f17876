//! The far end of a cable as a source of frames that costs its core little: a frame that is sent into another veth pair gets to an XDP program
//! there, which gives many copies of it to the cable.
//!
//! So neither the copies' way to the cable nor the work of the near end's core bounds the source: what the near end has no room for is lost,
//! as on a wire. The near end must receive by NAPI. Nothing receives here.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use ringway_traffic::Endpoint;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};

use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;

/// Copies of a frame.
const COPIES: usize = 32;
/// Most frames of one flush.
const ROOM: usize = 4 * COPIES;
/// Bytes of the longest frame.
const LONGEST: usize = 1514;
/// The pair of devices in which frames come to the program.
const PUMP: [&str; 2] = ["pump", "pumped"];

/// Commands of bpf(2), and their constants.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_OF_DEVICES: u32 = 14;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const IN_DRIVER: u32 = 1 << 2;

/// The far end.
pub struct WireEnd {
    socket: OwnedFd,
    _link: OwnedFd,
    frame: Vec<u8>,
    len: usize,
    queued: usize,
    failed: Option<io::Error>,
}

impl WireEnd {
    /// Opens the far end of `cable`.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn open(cable: &Cable) -> io::Result<WireEnd> {
        let [_, far] = cable.hosts();
        let (socket, link) = netns::inside(far, || {
            let [pump, pumped] = PUMP;
            netns::run("ip", &format!("link add dev {pump} type veth peer name {pumped}"))?;
            PUMP.iter().try_for_each(|end| netns::run("ip", &format!("link set dev {end} up")))?;
            let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
            let device = |name| name_to_index(&socket, name);
            let link = attach(device(pumped)?, device(WIRE)?)?;
            prepare(&socket, device(pump)?)?;
            Ok((socket, link))
        })?;
        Ok(WireEnd { socket, _link: link, frame: vec![0; LONGEST], len: 0, queued: 0, failed: None })
    }
}

/// Has the socket send to a device, past its queueing discipline. It takes frames of no protocol.
fn prepare(socket: &OwnedFd, device: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid address: numbers and an array of numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_ifindex = device as libc::c_int;
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads `on` and `address`, of these sizes, which outlive the calls.
    let done = unsafe {
        let size = |bytes: usize| bytes as libc::socklen_t;
        let (fd, on, on_size) = (socket.as_raw_fd(), (&raw const on).cast(), size(size_of::<libc::c_int>()));
        libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, on, on_size) == 0
            && libc::bind(fd, (&raw const address).cast(), size(size_of::<libc::sockaddr_ll>())) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Attaches the program to the device `from`: it gives the device `to`, which is [`COPIES`] times in its map, a copy for each time. The
/// program stays as long as what is returned. The devices are those of the calling thread's namespace.
fn attach(from: u32, to: u32) -> io::Result<OwnedFd> {
    // Type, bytes of a key and of a value, entries.
    let devices = descriptor(MAP_CREATE, &[MAP_OF_DEVICES, 4, 4, COPIES as u32])?;
    let map = devices.as_raw_fd() as u32;
    for key in 0..COPIES as u32 {
        let [[a, b], [c, d]] = [&key, &to].map(|value| words_of(std::ptr::from_ref(value) as u64));
        bpf(MAP_UPDATE, &[map, 0, a, b, c, d, 0, 0])?;
    }
    // Constants into registers 1 (the map, of two words), 2 (a key, unused) and 3 (to all: `BPF_F_BROADCAST`), `bpf_redirect_map`, the end.
    let program: [u64; 6] = [0x1118 | u64::from(map) << 32, 0, 0x02b7, 0x03b7 | 8 << 32, 0x85 | 51 << 32, 0x95];
    let [[a, b], [c, d]] = [program.as_ptr() as u64, c"Apache-2.0".as_ptr() as u64].map(words_of);
    let program = descriptor(PROGRAM_LOAD, &[PROGRAM_XDP, program.len() as u32, a, b, c, d])?;
    descriptor(LINK_CREATE, &[program.as_raw_fd() as u32, from, ATTACH_XDP, IN_DRIVER])
}

/// Returns an address as two words of a structure.
fn words_of(address: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = address.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// Executes a command with the beginning of its `union bpf_attr`.
fn bpf(command: libc::c_int, words: &[u32]) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads the words, and what their addresses name: values of the callers that have the sizes of the command, and outlive
    // the call.
    match unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), size_of_val(words)) } {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

fn descriptor(command: libc::c_int, words: &[u32]) -> io::Result<OwnedFd> {
    let fd = bpf(command, words)?;
    // SAFETY: the command returns a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

impl Endpoint for WireEnd {
    fn tx_room(&mut self) -> usize {
        ROOM - self.queued
    }

    /// Frames that are queued together are all like the last one.
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.queued == ROOM || len > LONGEST {
            return false;
        }
        fill(&mut self.frame[..len]);
        self.len = len;
        self.queued += 1;
        true
    }

    fn tx_repeat_many(&mut self, template: &[u8], most: usize) -> usize {
        let count = most.min(self.tx_room());
        if count > 0 && self.tx_push(template.len(), |frame| frame.copy_from_slice(template)) {
            self.queued += count - 1;
        }
        count
    }

    fn tx_flush(&mut self) {
        for _ in 0..std::mem::take(&mut self.queued).div_ceil(COPIES) {
            match send(&self.socket, &self.frame[..self.len], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                Err(error) => self.failed = Some(error.into()),
            }
        }
    }

    fn rx_batch(&mut self, _: usize, _: impl FnMut(&[u8])) -> usize {
        0
    }

    fn wait(&mut self, _: bool, _: Duration) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}
