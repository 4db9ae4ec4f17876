//! The port's packet socket (packet(7)): it keeps the device promiscuous, and copies group frames that the host keeps. A program in
//! the kernel gives each frame to one receiver only, so that group frames go to the host, and come here from its stack. They are not
//! ordered against other frames.
//!
//! The kernel writes frames into a ring of slots in memory (`TPACKET_V2`), so that a poller sees them without a system call.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_memory::{Mapping, View};
use ringway_switch::{Batch, Discarded, DropReason, Offload};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Slots of the ring.
const SLOTS: usize = 256;
/// Bytes of a slot: a jumbo frame with its header.
const SLOT: usize = 16 * 1024;
const BLOCK: usize = 256 * 1024;
/// Bytes that the kernel leaves before a frame, for the tag that it has taken out.
const RESERVED: libc::c_int = 64;

/// Words and bits of `struct tpacket2_hdr` (`include/uapi/linux/if_packet.h`).
mod slot {
    pub(super) const STATUS: usize = 0;
    pub(super) const LEN: usize = 4;
    pub(super) const TAKEN: usize = 8;
    pub(super) const OFFSETS: usize = 12;
    pub(super) const TAG: usize = 24;
    pub(super) const BYTES: usize = 32;
    /// The slot is the kernel's.
    pub(super) const KERNEL: u32 = 0;
    /// The slot has a frame.
    pub(super) const USER: u32 = 1;
    pub(super) const TAG_VALID: u32 = 1 << 4;
    pub(super) const TAG_KIND_VALID: u32 = 1 << 6;
}

/// A frame in a slot.
struct Arrived<'m> {
    frame: View<'m>,
    offload: Option<Offload>,
}

pub(super) struct PacketSocket {
    socket: OwnedFd,
    ring: Option<Ring>,
}

struct Ring {
    memory: Arc<Mapping>,
    /// The slot that is filled next.
    next: usize,
    /// Slots that were taken, and that the kernel does not have yet.
    taken: usize,
}

impl PacketSocket {
    /// Makes the device promiscuous while this exists. With `group`, group frames that arrive at the device come here.
    pub(super) fn open(device: u32, group: bool) -> io::Result<PacketSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol no frame comes before `bind`.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: device as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        let ring = if group { Some(Ring::open(&socket, device)?) } else { None };
        Ok(PacketSocket { socket, ring })
    }

    /// Returns true if there are frames.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.status(0) & slot::USER != 0)
    }

    /// Takes frames.
    pub(super) fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) {
        let Some(ring) = &mut self.ring else { return };
        let mut taken = 0;
        while batch.room() > 0 && taken < SLOTS && ring.status(taken) & slot::USER != 0 {
            match read(&ring.memory, (ring.next + taken) % SLOTS * SLOT) {
                Ok(Arrived { frame, offload: None }) => batch.push(frame, frame.len()),
                Ok(Arrived { frame, offload: Some(offload) }) => batch.push_offloaded(frame, frame.len(), offload),
                Err(reason) => batch.refuse(reason),
            }
            taken += 1;
        }
        ring.taken = taken;
    }

    /// Drops up to `most` frames unread.
    pub(super) fn discard(&mut self, most: u64, discarded: &mut Discarded) {
        let Some(ring) = &mut self.ring else { return };
        while discarded.frames < most && ring.taken < SLOTS && ring.status(ring.taken) & slot::USER != 0 {
            discarded.bytes += u64::from(ring.word(ring.taken, slot::LEN).load(Ordering::Relaxed));
            discarded.frames += 1;
            ring.taken += 1;
        }
        self.release();
    }

    /// Returns how many group frames were lost since this was last called: those for which the ring had no slot.
    pub(super) fn take_lost(&self) -> u64 {
        if self.ring.is_none() {
            return 0;
        }
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes up to `length` bytes to `statistics`, and both outlive the call.
        let result = unsafe {
            let to = (&raw mut statistics).cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &raw mut length)
        };
        if result == -1 { 0 } else { statistics.tp_drops.into() }
    }

    /// Gives the taken slots back to the kernel.
    pub(super) fn release(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        for slot in 0..ring.taken {
            ring.word(slot, slot::STATUS).store(slot::KERNEL, Ordering::Release);
        }
        ring.next = (ring.next + std::mem::take(&mut ring.taken)) % SLOTS;
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Ring {
    fn open(socket: &OwnedFd, device: u32) -> io::Result<Ring> {
        set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        set(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &(1 as libc::c_int))?;
        set(socket, libc::SOL_PACKET, libc::PACKET_RESERVE, &RESERVED)?;
        // Not frames that the host sends, and of those that arrive only group frames: the lowest bit of the first byte is set.
        set(socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &(1 as libc::c_int))?;
        let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut group = [
            instruction((libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16, 0, 0, 0),
            instruction((libc::BPF_JMP | libc::BPF_JSET) as u16, 0, 1, 1),
            instruction(libc::BPF_RET as u16, 0, 0, u32::MAX),
            instruction(libc::BPF_RET as u16, 0, 0, 0),
        ];
        let filter = libc::sock_fprog { len: group.len() as u16, filter: group.as_mut_ptr() };
        set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (SLOTS * SLOT / BLOCK) as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: SLOTS as u32,
        };
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Arc::new(Mapping::shared(socket.as_fd(), SLOTS * SLOT)?);
        bind(socket, device)?;
        Ok(Ring { memory, next: 0, taken: 0 })
    }

    /// Returns a word of the slot that is `ahead` slots behind the next one.
    #[inline]
    fn word(&self, ahead: usize, at: usize) -> &AtomicU32 {
        word(&self.memory, (self.next + ahead) % SLOTS * SLOT + at)
    }

    #[inline]
    fn status(&self, ahead: usize) -> u32 {
        self.word(ahead, slot::STATUS).load(Ordering::Acquire)
    }
}

/// Returns a word of the ring.
#[inline]
fn word(memory: &Mapping, at: usize) -> &AtomicU32 {
    let word = memory.view(at, 4).and_then(|view| view.words32()?.first());
    word.expect("slots and words are aligned, and in the ring")
}

/// Returns the frame in the slot that begins at `at`.
fn read(memory: &Mapping, at: usize) -> Result<Arrived<'_>, DropReason> {
    let load = |offset| word(memory, at + offset).load(Ordering::Relaxed);
    let (status, len, taken) = (load(slot::STATUS), load(slot::LEN) as usize, load(slot::TAKEN) as usize);
    if taken < len {
        return Err(DropReason::Oversize);
    }
    let start = (load(slot::OFFSETS) & 0xffff) as usize;
    let whole = memory.view(at, SLOT).ok_or(DropReason::BadBuffer)?;
    let found = || Some((whole.sub(start.checked_sub(Offload::BYTES)?, Offload::BYTES)?, whole.sub(start, len)?));
    let (header, frame) = found().filter(|_| start >= slot::BYTES + 16).ok_or(DropReason::BadBuffer)?;
    let mut offload = [0; Offload::BYTES];
    let _ = header.read(&mut offload);
    let offload = Offload::decode(&offload).map_err(|_| DropReason::BadOffload)?;
    if status & slot::TAG_VALID == 0 {
        return Ok(Arrived { frame, offload });
    }
    // The kernel has taken the tag out: put it back, over the header before the frame.
    let tag = load(slot::TAG);
    let kind = if status & slot::TAG_KIND_VALID == 0 { 0x8100 } else { (tag >> 16) as u16 };
    let mut addresses = [0; 16];
    let tagged = whole.sub(start - 4, len + 4).ok_or(DropReason::BadBuffer)?;
    if len < 12 || !frame.sub(0, 12).is_some_and(|part| part.read(&mut addresses[..12])) {
        return Err(DropReason::Runt);
    }
    addresses[12..14].copy_from_slice(&kind.to_be_bytes());
    addresses[14..].copy_from_slice(&(tag as u16).to_be_bytes());
    let _ = tagged.sub(0, 16).is_some_and(|part| part.write(&addresses));
    let offload = offload.map(|left| Offload { csum_start: left.csum_start.saturating_add(4), ..left });
    Ok(Arrived { frame: tagged, offload })
}

/// `PACKET_IGNORE_OUTGOING` (Linux 4.20).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Sets an option of a socket. `value` has the type that the option is documented with.
fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`, and what a filter refers to, which outlive the call.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size_of::<T>() as libc::socklen_t)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the socket take frames of all protocols of a device.
fn bind(socket: &OwnedFd, device: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid address: numbers and an array of numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = device as libc::c_int;
    // SAFETY: the kernel reads this many bytes of `address`, which outlives the call.
    let result = unsafe {
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
