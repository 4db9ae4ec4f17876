//! The program in the kernel that decides which frames of a device come to the port's sockets (bpf(2)). It is attached by a link,
//! which the kernel removes with its last descriptor: the host has its device back however this process ends.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of bpf(2) (`include/uapi/linux/bpf.h`, `enum bpf_cmd`).
mod command {
    pub const MAP_CREATE: libc::c_int = 0;
    pub const MAP_UPDATE: libc::c_int = 2;
    pub const PROGRAM_LOAD: libc::c_int = 5;
    pub const LINK_CREATE: libc::c_int = 28;
}

const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program takes frames in several pieces (Linux 5.18).
const HAS_PIECES: u32 = 1 << 5;

/// The place of a program in the kernel's receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Place {
    /// In the kernel's stack: works with every device (`XDP_FLAGS_SKB_MODE`).
    Stack = 1 << 1,
    /// In the device's driver (`XDP_FLAGS_DRV_MODE`).
    Driver = 1 << 2,
}

/// The beginning of `union bpf_attr` for one command each.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_kind: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    device: u32,
    attach_kind: u32,
    flags: u32,
}

/// Marks the commands' structures.
///
/// # Safety
/// The structure is the beginning of `union bpf_attr` for `COMMAND`, without padding, and its addresses are valid while the call
/// lasts.
unsafe trait Attributes {
    const COMMAND: libc::c_int;
}

// SAFETY: the fields are those of `BPF_MAP_CREATE`, and it has no addresses.
unsafe impl Attributes for MapCreate {
    const COMMAND: libc::c_int = command::MAP_CREATE;
}
// SAFETY: the fields are those of `BPF_MAP_UPDATE_ELEM`; `Sockets::set` gives addresses of its own variables.
unsafe impl Attributes for MapUpdate {
    const COMMAND: libc::c_int = command::MAP_UPDATE;
}
// SAFETY: the fields are those of `BPF_PROG_LOAD`; `load` gives addresses of its arguments.
unsafe impl Attributes for ProgramLoad {
    const COMMAND: libc::c_int = command::PROGRAM_LOAD;
}
// SAFETY: the fields are those of `BPF_LINK_CREATE`, and it has no addresses.
unsafe impl Attributes for LinkCreate {
    const COMMAND: libc::c_int = command::LINK_CREATE;
}

fn bpf<A: Attributes>(attributes: &A) -> io::Result<libc::c_long> {
    // SAFETY: see `Attributes`: the kernel reads this many bytes of the structure, and what it refers to.
    match unsafe { libc::syscall(libc::SYS_bpf, A::COMMAND, std::ptr::from_ref(attributes), size_of::<A>()) } {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

fn descriptor<A: Attributes>(attributes: &A) -> io::Result<OwnedFd> {
    let fd = bpf(attributes)?;
    // SAFETY: these commands return a new descriptor (close-on-exec), which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// The sockets of a device's queues, by queue.
pub struct Sockets(OwnedFd);

impl Sockets {
    /// Makes the table of so many queues.
    ///
    /// # Errors
    /// This user may not, or the kernel has no memory.
    pub fn new(queues: u32) -> io::Result<Self> {
        let create =
            MapCreate { kind: MAP_OF_SOCKETS, key_bytes: 4, value_bytes: 4, entries: queues, ..MapCreate::default() };
        Ok(Sockets(descriptor(&create)?))
    }

    /// Gives the frames of a queue to a socket.
    ///
    /// # Errors
    /// The socket is not bound to a queue.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let (key, value) = (std::ptr::from_ref(&queue) as u64, std::ptr::from_ref(&value) as u64);
        bpf(&MapUpdate { map: self.0.as_raw_fd() as u32, key, value, ..MapUpdate::default() }).map(|_| ())
    }
}

/// Which frames the host keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Frames to this address, and group frames.
    Keeps([u8; 6]),
    /// All but frames of this EtherType and, with an address, TCP over IPv4 to this address.
    KeepsAllBut {
        /// The EtherType.
        ethertype: u16,
        /// The address, which is none of the host's own.
        address: Option<Ipv4Addr>,
    },
    /// None.
    Nothing,
}

/// One instruction (Documentation/bpf/standardization/instruction-set.rst): opcode, registers, offset, constant.
fn instruction(opcode: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = constant.to_le_bytes();
    u64::from_ne_bytes([opcode, to | from << 4, low, high, a, b, c, d])
}

/// Makes the program: gives the socket of the frame's queue every frame that the host does not keep, and the host's stack what has no
/// socket.
fn instructions(sockets: &Sockets, host: Host) -> Vec<u64> {
    const LOAD_BYTE: u8 = 0x71;
    const LOAD_HALF: u8 = 0x69;
    const LOAD_WORD: u8 = 0x61;
    const LOAD_CONSTANT: u8 = 0x18;
    const MOVE: u8 = 0xbf;
    const MOVE_CONSTANT: u8 = 0xb7;
    const ADD_CONSTANT: u8 = 0x07;
    const JUMP_GREATER: u8 = 0x2d;
    const JUMP_IF_BITS: u8 = 0x45;
    const JUMP_EQUAL_32: u8 = 0x16;
    const JUMP_NOT_32: u8 = 0x56;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const REDIRECT_TO_MAP: i32 = 51;
    /// The result that gives the frame to the host.
    const PASS: i32 = 2;
    // Offsets in `struct xdp_md`.
    let (data, data_end, queue) = (0, 4, 16);
    let mut program = Vec::new();
    let half = |value: u16| i32::from(u16::from_ne_bytes(value.to_be_bytes()));
    match host {
        Host::Nothing => {}
        Host::KeepsAllBut { ethertype, address } => {
            // Instructions up to those that give the frame to the host.
            let left = if address.is_some() { 10 } else { 2 };
            program.extend([
                instruction(LOAD_WORD, 2, 1, data, 0),
                instruction(LOAD_WORD, 3, 1, data_end, 0),
                instruction(MOVE, 4, 2, 0, 0),
                instruction(ADD_CONSTANT, 4, 0, 0, 14),
                instruction(JUMP_GREATER, 4, 3, left, 0),
                instruction(LOAD_HALF, 4, 2, 12, 0),
                instruction(JUMP_EQUAL_32, 4, 0, left, half(ethertype)),
            ]);
            program.extend(address.into_iter().flat_map(|address| {
                [
                    instruction(JUMP_NOT_32, 4, 0, 7, half(0x0800)),
                    instruction(MOVE, 4, 2, 0, 0),
                    instruction(ADD_CONSTANT, 4, 0, 0, 34),
                    instruction(JUMP_GREATER, 4, 3, 4, 0),
                    instruction(LOAD_BYTE, 4, 2, 23, 0),
                    instruction(JUMP_NOT_32, 4, 0, 2, 6),
                    instruction(LOAD_WORD, 4, 2, 30, 0),
                    instruction(JUMP_EQUAL_32, 4, 0, 2, i32::from_ne_bytes(address.octets())),
                ]
            }));
            program.extend([instruction(MOVE_CONSTANT, 0, 0, 0, PASS), instruction(EXIT, 0, 0, 0, 0)]);
        }
        Host::Keeps([a, b, c, d, e, f]) => {
            let (first, last) = (i32::from_le_bytes([a, b, c, d]), i32::from(u16::from_le_bytes([e, f])));
            program.extend([
                instruction(LOAD_WORD, 2, 1, data, 0),
                instruction(LOAD_WORD, 3, 1, data_end, 0),
                instruction(MOVE, 4, 2, 0, 0),
                instruction(ADD_CONSTANT, 4, 0, 0, 14),
                // Shorter than a header: to the host, at the end of these instructions.
                instruction(JUMP_GREATER, 4, 3, 6, 0),
                instruction(LOAD_BYTE, 4, 2, 0, 0),
                instruction(JUMP_IF_BITS, 4, 0, 4, 1),
                instruction(LOAD_WORD, 4, 2, 0, 0),
                instruction(JUMP_NOT_32, 4, 0, 4, first),
                instruction(LOAD_HALF, 4, 2, 4, 0),
                instruction(JUMP_NOT_32, 4, 0, 2, last),
                instruction(MOVE_CONSTANT, 0, 0, 0, PASS),
                instruction(EXIT, 0, 0, 0, 0),
            ]);
        }
    }
    program.extend([
        instruction(LOAD_WORD, 2, 1, queue, 0),
        // The map by its descriptor (`BPF_PSEUDO_MAP_FD`), an instruction of two words.
        instruction(LOAD_CONSTANT, 1, 1, 0, sockets.0.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE_CONSTANT, 3, 0, 0, PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_TO_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]);
    program
}

/// A program that runs for the frames of a device. It ends when the last descriptor of its link is closed.
pub struct Attached {
    link: OwnedFd,
}

impl AsFd for Attached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// The program of this link, which another process has made.
impl From<OwnedFd> for Attached {
    fn from(link: OwnedFd) -> Self {
        Attached { link }
    }
}

impl Attached {
    /// Loads the program and attaches it to a device.
    ///
    /// # Errors
    /// `EBUSY`: the device has another program. `EPERM`: this user may not.
    pub fn new(device: u32, sockets: &Sockets, host: Host, place: Place) -> io::Result<Self> {
        let instructions = instructions(sockets, host);
        let mut load = ProgramLoad {
            kind: PROGRAM_XDP,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            licence: c"Apache-2.0".as_ptr() as u64,
            flags: HAS_PIECES,
            attach_kind: ATTACH_XDP,
            ..ProgramLoad::default()
        };
        load.name[..7].copy_from_slice(b"ringway");
        let program = match descriptor(&load) {
            // Before Linux 5.18.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => descriptor(&ProgramLoad { flags: 0, ..load })?,
            other => other?,
        };
        let link =
            LinkCreate { program: program.as_raw_fd() as u32, device, attach_kind: ATTACH_XDP, flags: place as u32 };
        Ok(Attached { link: descriptor(&link)? })
    }
}
