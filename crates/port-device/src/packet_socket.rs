//! A packet socket (packet(7)): copies of frames that arrive at a network device, which the host's stack gets, too.
//!
//! The kernel writes frames into a ring of slots in memory (`TPACKET_V2`), so that a poller sees them without a system call. What is
//! left to do for a frame is in a header before it (`PACKET_VNET_HDR`). A ring of group frames has no such headers: a frame that they
//! cannot describe stops the ring ([`Standstill`]), and anybody may send one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_memory::{HEAD_BYTES, Head, Kept, Mapping, View};
use ringway_netdevice::packet;
use ringway_switch::{Batch, Discarded, DropReason, Offload};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::kept::unreadable;
use crate::partial::left_to_do;
use crate::positions::Positions;

/// Slots of the ring.
const SLOTS: usize = 256;
/// Slots of a block, which is memory that the kernel allocates together.
const BLOCK: usize = 4;
/// Bytes that the kernel leaves between what it says of a frame and the frame.
const RESERVED: libc::c_int = 64;

/// Words and bits of `struct tpacket2_hdr` (`include/uapi/linux/if_packet.h`).
mod slot {
    pub(super) const STATUS: usize = 0;
    pub(super) const LEN: usize = 4;
    pub(super) const TAKEN: usize = 8;
    pub(super) const OFFSETS: usize = 12;
    pub(super) const SECONDS: usize = 16;
    pub(super) const NANOSECONDS: usize = 20;
    pub(super) const TAG: usize = 24;
    pub(super) const BYTES: usize = 32;
    /// The slot is the kernel's.
    pub(super) const KERNEL: u32 = 0;
    /// The slot has a frame.
    pub(super) const USER: u32 = 1;
    /// The frame's checksum is incomplete.
    pub(super) const NO_CHECKSUM: u32 = 1 << 3;
    pub(super) const TAG_VALID: u32 = 1 << 4;
    pub(super) const TAG_KIND_VALID: u32 = 1 << 6;
}

/// Which frames come to the socket. None that the host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// None: the device is promiscuous, and that is all.
    Nothing,
    /// Group frames.
    Group,
    /// Frames that are not for the host alone: group frames, and unicast to other addresses than the device's own.
    NotOurs,
}

impl Wanted {
    /// Bytes of a slot: with GRO the host's stack joins frames to up to 64 KiB. It joins no group frames.
    fn slot_bytes(self) -> usize {
        match self {
            Wanted::Nothing | Wanted::Group => 16 * 1024,
            Wanted::NotOurs => 66 * 1024,
        }
    }

    /// A header before each frame says what is left to do for it.
    fn has_headers(self) -> bool {
        self == Wanted::NotOurs
    }

    /// Returns the filter (Documentation/networking/filter.rst). The filter repeats what the socket's address and options say, because a process that has the socket can
    /// change those.
    fn filter(self, device: u32) -> Vec<libc::sock_filter> {
        let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        // Offsets of ancillary data: what the frame is to the host, and the device's number.
        let [kind, index] = [libc::SKF_AD_PKTTYPE, libc::SKF_AD_IFINDEX].map(|which| (libc::SKF_AD_OFF + which) as u32);
        let (byte, word) = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
        let [equal, more, bits] =
            [libc::BPF_JEQ, libc::BPF_JGT, libc::BPF_JSET].map(|condition| libc::BPF_JMP | condition);
        let last = match self {
            Wanted::Nothing => return vec![DROP],
            // The lowest bit of a group address's first byte is set.
            Wanted::Group => [instruction(byte, 0, 0, 0), instruction(bits, 0, 1, 1)],
            Wanted::NotOurs => [instruction(byte, 0, 0, kind), instruction(equal, 1, 0, u32::from(libc::PACKET_HOST))],
        };
        let [first, second] = last;
        vec![
            instruction(word, 0, 0, index),
            instruction(equal, 0, 5, device),
            instruction(byte, 0, 0, kind),
            // What the host sends.
            instruction(more, 3, 0, u32::from(libc::PACKET_OTHERHOST)),
            first,
            second,
            TAKE,
            DROP,
        ]
    }
}

const TAKE: libc::sock_filter = libc::sock_filter { code: libc::BPF_RET as u16, jt: 0, jf: 0, k: u32::MAX };
const DROP: libc::sock_filter = libc::sock_filter { code: libc::BPF_RET as u16, jt: 0, jf: 0, k: 0 };

/// A frame in a slot.
struct Arrived<'m> {
    frame: View<'m>,
    offload: Option<Offload>,
    /// The VLAN tag that the kernel has taken out of the frame.
    tag: Option<[u8; TAG_BYTES]>,
}

/// Bytes of the addresses of a frame, and of the tag behind them.
const ADDRESSES: usize = 12;
const TAG_BYTES: usize = 4;

pub(crate) struct PacketSocket {
    socket: OwnedFd,
    ring: Option<Ring>,
}

/// What a look at a socket has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Frames that were lost since the last look: those for which the ring had no slot.
    pub(crate) lost: u64,
    /// No frame will come any more: for rings with headers only.
    pub(crate) is_stalled: bool,
}

/// Tells a ring that the kernel has given up from one that was full.
///
/// The kernel reserves the next slot for a frame before it makes the frame's header. If no header can describe the frame (UDP
/// fragmentation offload, SCTP segmentation), the kernel drops the frame and keeps the slot reserved: it finds no slot for any later
/// frame (Linux 5.6 and newer, `tpacket_rcv`).
#[derive(Debug, Default)]
struct Standstill {
    /// The ring was empty at the last look, and no frame was taken since.
    was_empty: bool,
}

impl Standstill {
    /// Returns true if frames were lost while the ring was empty all the time.
    fn look(&mut self, lost: u64, is_empty: bool) -> bool {
        std::mem::replace(&mut self.was_empty, is_empty) && is_empty && lost > 0
    }
}

struct Ring {
    memory: Arc<Mapping>,
    wanted: Wanted,
    slot_bytes: usize,
    /// The slot that is filled next.
    next: usize,
    /// Slots that were taken, and that the kernel does not have yet.
    taken: usize,
    /// Where a successor finds what was taken: a [`Taken`].
    position: Kept<AtomicU64>,
    standstill: Standstill,
}

/// Slots that were taken together, as it is noted before their frames can arrive anywhere.
///
/// The kernel gets the slots back in the reverse order. Until it has the first one it fills none of them again, as it looks at that one before all others. So
/// while the first slot has the same frame, the kernel may not have some of the slots; afterwards it has had all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    first: u16,
    slots: u16,
    /// Of the first slot's frame: the low bits of the time when it came.
    stamp: u32,
}

impl Taken {
    fn word(self) -> u64 {
        u64::from(self.first) | u64::from(self.slots) << 16 | u64::from(self.stamp) << 32
    }

    fn of(word: u64) -> Self {
        Self { first: word as u16, slots: (word >> 16) as u16, stamp: (word >> 32) as u32 }
    }
}

impl PacketSocket {
    /// Opens a socket. The device is promiscuous while it exists.
    pub(crate) fn open(device: u32, wanted: Wanted) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol no frame comes before `bind`.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: device as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        packet::set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        if wanted != Wanted::Nothing {
            set_up_ring(&socket, wanted)?;
        }
        packet::filter(&socket, &wanted.filter(device))?;
        // The switch has no privileges, but the socket: a client that has taken it over gets no other frames by that.
        packet::set(&socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &(1 as libc::c_int))?;
        if wanted != Wanted::Nothing {
            packet::bind(&socket, device, libc::ETH_P_ALL as u16)?;
        }
        Ok(socket)
    }

    /// Takes the frames of an open socket, behind those that a predecessor has taken.
    ///
    /// # Errors
    /// The kernel has no memory, or the position is none of such a ring.
    pub(crate) fn new(socket: OwnedFd, wanted: Wanted, positions: &Positions) -> io::Result<PacketSocket> {
        let ring =
            if wanted == Wanted::Nothing { None } else { Some(Ring::new(&socket, wanted, positions.packets()?)?) };
        Ok(PacketSocket { socket, ring })
    }

    /// Returns true if there are frames.
    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.status(0) & slot::USER != 0)
    }

    /// Takes frames.
    pub(crate) fn collect<'m>(&'m mut self, batch: &mut Batch<'m>, mtu: usize) {
        let Some(ring) = &mut self.ring else { return };
        let mut taken = 0;
        while batch.room() > 0 && taken < SLOTS && ring.status(taken) & slot::USER != 0 {
            match read(&ring.memory, ring.start(taken), ring.wanted, mtu) {
                Ok(Arrived { frame, offload, tag: Some(tag) }) => push_tagged(batch, frame, tag, offload),
                Ok(Arrived { frame, offload: None, .. }) => batch.push(frame, frame.len()),
                Ok(Arrived { frame, offload: Some(offload), .. }) => batch.push_offloaded(frame, frame.len(), offload),
                Err(reason) => batch.refuse(reason),
            }
            taken += 1;
        }
        ring.taken = taken;
        ring.note_taken();
    }

    /// Drops up to `most` frames unread.
    pub(crate) fn discard(&mut self, most: u64, discarded: &mut Discarded) {
        let Some(ring) = &mut self.ring else { return };
        let mut taken = 0;
        while discarded.frames < most && taken < SLOTS && ring.status(taken) & slot::USER != 0 {
            discarded.bytes += u64::from(ring.word(taken, slot::LEN).load(Ordering::Relaxed));
            discarded.frames += 1;
            taken += 1;
        }
        ring.taken = taken;
        ring.note_taken();
        self.release();
    }

    /// Looks for frames that the kernel has lost.
    pub(crate) fn look(&mut self) -> Look {
        let lost = self.take_lost();
        let Some(ring) = &mut self.ring else { return Look::default() };
        let is_empty = ring.status(0) & slot::USER == 0;
        Look { lost, is_stalled: ring.standstill.look(lost, is_empty) && ring.wanted.has_headers() }
    }

    fn take_lost(&self) -> u64 {
        if self.ring.is_none() { 0 } else { packet::take_lost(&self.socket) }
    }

    /// Gives the taken slots back to the kernel.
    pub(crate) fn release(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.release();
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Gives the socket a ring, and the frames that are wanted.
fn set_up_ring(socket: &OwnedFd, wanted: Wanted) -> io::Result<()> {
    packet::set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
    if wanted.has_headers() {
        packet::set(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &(1 as libc::c_int))?;
    }
    packet::set(socket, libc::SOL_PACKET, libc::PACKET_RESERVE, &RESERVED)?;
    packet::set(socket, libc::SOL_PACKET, packet::PACKET_IGNORE_OUTGOING, &(1 as libc::c_int))?;
    let slot_bytes = wanted.slot_bytes();
    let request = libc::tpacket_req {
        tp_block_size: (BLOCK * slot_bytes) as u32,
        tp_block_nr: (SLOTS / BLOCK) as u32,
        tp_frame_size: slot_bytes as u32,
        tp_frame_nr: SLOTS as u32,
    };
    packet::set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

impl Ring {
    fn new(socket: &OwnedFd, wanted: Wanted, position: Kept<AtomicU64>) -> io::Result<Ring> {
        let slot_bytes = wanted.slot_bytes();
        let memory = Arc::new(Mapping::shared(socket.as_fd(), SLOTS * slot_bytes)?);
        let Taken { first, slots, stamp } = Taken::of(position.load(Ordering::Relaxed));
        let (next, slots) = (usize::from(first), usize::from(slots));
        if next >= SLOTS || slots > SLOTS {
            return Err(unreadable());
        }
        let mut ring =
            Ring { memory, wanted, slot_bytes, next, taken: slots, position, standstill: Standstill::default() };
        if ring.status(0) & slot::USER != 0 && ring.stamp() == stamp {
            ring.release();
        } else {
            ring.next = (next + std::mem::take(&mut ring.taken)) % SLOTS;
        }
        Ok(ring)
    }

    /// Notes which slots are taken, if there are any.
    fn note_taken(&self) {
        if self.taken > 0 {
            let taken = Taken { first: self.next as u16, slots: self.taken as u16, stamp: self.stamp() };
            self.position.store(taken.word(), Ordering::Relaxed);
        }
    }

    /// Gives the taken slots back to the kernel.
    fn release(&mut self) {
        self.standstill.was_empty &= self.taken == 0;
        for slot in (0..self.taken).rev() {
            self.word(slot, slot::STATUS).store(slot::KERNEL, Ordering::Release);
        }
        self.next = (self.next + std::mem::take(&mut self.taken)) % SLOTS;
    }

    /// Says when the frame in the next slot came.
    fn stamp(&self) -> u32 {
        let word = |at| self.word(0, at).load(Ordering::Relaxed);
        word(slot::SECONDS) << 30 ^ word(slot::NANOSECONDS)
    }

    /// Returns where the slot begins that is `ahead` slots behind the next one.
    #[inline]
    fn start(&self, ahead: usize) -> usize {
        (self.next + ahead) % SLOTS * self.slot_bytes
    }

    /// Returns a word of the slot that is `ahead` slots behind the next one.
    #[inline]
    fn word(&self, ahead: usize, at: usize) -> &AtomicU32 {
        word(&self.memory, self.start(ahead) + at)
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
fn read(memory: &Mapping, at: usize, wanted: Wanted, mtu: usize) -> Result<Arrived<'_>, DropReason> {
    let load = |offset| word(memory, at + offset).load(Ordering::Relaxed);
    let (status, len, taken) = (load(slot::STATUS), load(slot::LEN) as usize, load(slot::TAKEN) as usize);
    if taken < len {
        return Err(DropReason::Oversize);
    }
    let start = (load(slot::OFFSETS) & 0xffff) as usize;
    let whole = memory.view(at, wanted.slot_bytes()).ok_or(DropReason::BadBuffer)?;
    let found = || Some((whole.sub(start.checked_sub(Offload::BYTES)?, Offload::BYTES)?, whole.sub(start, len)?));
    let (header, frame) = found().filter(|_| start >= slot::BYTES + 16).ok_or(DropReason::BadBuffer)?;
    let offload = if wanted.has_headers() {
        let mut offload = [0; Offload::BYTES];
        let _ = header.read(&mut offload);
        Offload::decode(&offload).map_err(|_| DropReason::BadOffload)?
    } else if status & slot::NO_CHECKSUM != 0 {
        let mut head = Head([0; HEAD_BYTES]);
        let read = frame.read_head(len, &mut head);
        Some(left_to_do(&head.0[..read], len, mtu)?.ok_or(DropReason::BadOffload)?)
    } else {
        None
    };
    let tag = (status & slot::TAG_VALID != 0).then(|| {
        let tag = load(slot::TAG);
        let kind = if status & slot::TAG_KIND_VALID == 0 { 0x8100 } else { (tag >> 16) as u16 };
        let ([a, b], [c, d]) = (kind.to_be_bytes(), (tag as u16).to_be_bytes());
        [a, b, c, d]
    });
    if tag.is_some() && len < ADDRESSES {
        return Err(DropReason::Runt);
    }
    Ok(Arrived { frame, offload, tag })
}

/// Adds a frame with its tag, in the batch's own copy of its beginning. The ring stays as the kernel has written it: a successor may take the frame once more.
fn push_tagged<'m>(batch: &mut Batch<'m>, frame: View<'m>, tag: [u8; TAG_BYTES], offload: Option<Offload>) {
    let in_head = frame.len().min(HEAD_BYTES - TAG_BYTES);
    let (head, rests) = batch.draft();
    let mut untagged = Head([0; HEAD_BYTES]);
    frame.read_head(in_head, &mut untagged);
    let (addresses, others) = untagged.0[..in_head].split_at(ADDRESSES);
    head.0[..ADDRESSES].copy_from_slice(addresses);
    head.0[ADDRESSES..][..TAG_BYTES].copy_from_slice(&tag);
    head.0[ADDRESSES + TAG_BYTES..][..others.len()].copy_from_slice(others);
    rests.extend(frame.sub(in_head, frame.len() - in_head).filter(|rest| rest.len() > 0));
    match offload {
        None => batch.seal(in_head + TAG_BYTES, None),
        Some(offload) => {
            let csum_start = offload.csum_start.saturating_add(TAG_BYTES as u16);
            batch.seal_offloaded(in_head + TAG_BYTES, Offload { csum_start, ..offload });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;

    use ringway_testing::skip;

    use super::*;

    #[test]
    fn whoever_has_the_socket_can_have_it_take_no_other_frames() {
        if !rustix::process::geteuid().is_root() {
            skip!("packet sockets need root");
        }
        for wanted in [Wanted::Nothing, Wanted::Group, Wanted::NotOurs] {
            // The loopback device of this machine.
            let socket = PacketSocket::open(1, wanted).expect("a socket");
            let all = packet::filter(&socket, &[TAKE]).expect_err("refused");
            assert_eq!(all.kind(), ErrorKind::PermissionDenied, "{wanted:?}");
            let none = 0_u32;
            // SAFETY: the call reads a number at most.
            let detached = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_DETACH_FILTER,
                    (&raw const none).cast(),
                    4,
                )
            };
            assert_eq!(detached, -1, "{wanted:?}");
        }
    }

    /// What a filter makes of a frame: the kernel's machine, as far as these filters use it.
    fn takes(filter: &[libc::sock_filter], first: u8, kind: u32, device: u32) -> bool {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = filter[at];
            let code = u32::from(code);
            let jump = |holds: bool| 1 + usize::from(if holds { jt } else { jf });
            at += match code & 0x07 {
                libc::BPF_RET => return k != 0,
                libc::BPF_LD => {
                    loaded = match k.cast_signed() - libc::SKF_AD_OFF {
                        libc::SKF_AD_PKTTYPE => kind,
                        libc::SKF_AD_IFINDEX => device,
                        _ => u32::from(first),
                    };
                    1
                }
                _ if code & 0xf0 == libc::BPF_JEQ => jump(loaded == k),
                _ if code & 0xf0 == libc::BPF_JGT => jump(loaded > k),
                _ => jump(loaded & k != 0),
            };
        }
    }

    #[test]
    fn a_filter_takes_frames_that_arrive_at_its_device_only() {
        let kinds = [
            libc::PACKET_HOST,
            libc::PACKET_BROADCAST,
            libc::PACKET_MULTICAST,
            libc::PACKET_OTHERHOST,
            libc::PACKET_OUTGOING,
            libc::PACKET_LOOPBACK,
        ];
        let taken =
            |wanted: Wanted, first, device| kinds.map(|kind| takes(&wanted.filter(7), first, u32::from(kind), device));
        for first in [0x52, 0x33, 0xff] {
            assert_eq!(taken(Wanted::Nothing, first, 7), [false; 6]);
            for wanted in [Wanted::Group, Wanted::NotOurs] {
                assert_eq!(taken(wanted, first, 8), [false; 6], "{wanted:?}");
            }
            assert_eq!(taken(Wanted::NotOurs, first, 7), [false, true, true, true, false, false]);
        }
        assert_eq!(taken(Wanted::Group, 0x52, 7), [false; 6]);
        assert_eq!(taken(Wanted::Group, 0x33, 7), [true, true, true, true, false, false]);
    }

    #[test]
    fn only_an_empty_ring_that_loses_frames_stands_still() {
        let looks = |looks: &[(u64, bool)]| {
            let mut standstill = Standstill::default();
            looks.iter().map(|&(lost, is_empty)| standstill.look(lost, is_empty)).collect::<Vec<_>>()
        };
        // Emptied after an overrun, which may be long ago.
        assert_eq!(looks(&[(5, true), (0, true), (0, true)]), [false; 3]);
        assert_eq!(looks(&[(5, false), (5, false), (5, true)]), [false; 3]);
        assert_eq!(looks(&[(1, true), (1, true)]), [false, true]);
        assert_eq!(looks(&[(0, true), (1, true)]), [false, true]);
    }

    #[test]
    fn a_ring_that_was_emptied_between_two_looks_does_not_stand_still() {
        let mut standstill = Standstill::default();
        assert!(!standstill.look(0, true));
        // Frames were taken.
        standstill.was_empty = false;
        assert!(!standstill.look(7, true));
    }

    /// A ring that a test fills in place of the kernel.
    struct Kernel {
        file: OwnedFd,
        positions: Positions,
    }

    impl Kernel {
        fn new() -> Self {
            let file = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
            rustix::fs::ftruncate(&file, (SLOTS * Wanted::Group.slot_bytes()) as u64).expect("memory");
            Self { file, positions: Positions::new().expect("positions") }
        }

        /// What a switch takes over.
        fn ring(&self) -> Ring {
            Ring::new(&self.file, Wanted::Group, self.positions.packets().expect("a word")).expect("a ring")
        }

        fn fill(&self, slots: std::ops::Range<usize>, time: u32) {
            let ring = Mapping::shared(self.file.as_fd(), SLOTS * Wanted::Group.slot_bytes()).expect("memory");
            for slot in slots {
                let at = slot % SLOTS * Wanted::Group.slot_bytes();
                word(&ring, at + slot::NANOSECONDS).store(time, Ordering::Relaxed);
                word(&ring, at + slot::STATUS).store(slot::USER, Ordering::Release);
            }
        }
    }

    fn take(ring: &mut Ring, slots: usize) {
        ring.taken = slots;
        ring.note_taken();
    }

    /// The slots with frames, from the next one on.
    fn waiting(ring: &Ring) -> Vec<usize> {
        (0..SLOTS).filter(|ahead| ring.status(*ahead) & slot::USER != 0).collect()
    }

    #[test]
    fn a_successor_gives_back_the_slots_that_were_taken_and_takes_the_others() {
        for before in [0, 254] {
            let kernel = Kernel::new();
            kernel.fill(0..before, 1);
            let mut ring = kernel.ring();
            take(&mut ring, before);
            ring.release();
            kernel.fill(before..before + 5, 2);
            take(&mut ring, 3);
            // Died before it gave any back, and after it gave back the last one.
            for back in [0, 1] {
                (0..back).for_each(|_| ring.word(2, slot::STATUS).store(slot::KERNEL, Ordering::Release));
                let next = kernel.ring();
                assert_eq!((next.next, waiting(&next)), ((before + 3) % SLOTS, vec![0, 1]));
                kernel.fill(before..before + 3, 2);
            }
            // Died after it gave back all: the kernel has filled the whole ring again.
            kernel.fill(before..before + SLOTS, 3);
            let next = kernel.ring();
            assert_eq!((next.next, waiting(&next).len()), ((before + 3) % SLOTS, SLOTS));
        }
    }

    #[test]
    fn an_empty_ring_goes_on_where_the_kernel_writes_next() {
        let kernel = Kernel::new();
        kernel.fill(0..7, 1);
        let mut ring = kernel.ring();
        take(&mut ring, 7);
        ring.release();
        let next = kernel.ring();
        assert_eq!((next.next, waiting(&next)), (7, Vec::new()));
    }

    #[test]
    fn frames_with_tags_that_are_taken_twice_are_the_same() {
        const START: usize = 128;
        // All in the batch's own copy, over its end by the tag, and with much behind it.
        for len in [12, 60, 124, 126, 128, 1500] {
            let kernel = Kernel::new();
            let ring = Mapping::shared(kernel.file.as_fd(), SLOTS * Wanted::Group.slot_bytes()).expect("memory");
            let frame: Vec<u8> = (0..len).map(|number| number as u8).collect();
            for slot in 0..3 {
                let at = slot * Wanted::Group.slot_bytes();
                assert!(ring.view(at + START, len).is_some_and(|view| view.write(&frame)));
                let words = [(slot::LEN, len as u32), (slot::TAKEN, len as u32), (slot::OFFSETS, START as u32)];
                words.into_iter().for_each(|(offset, value)| word(&ring, at + offset).store(value, Ordering::Relaxed));
                word(&ring, at + slot::TAG).store(0x88a8_0123, Ordering::Relaxed);
                let kind = if slot == 0 { 0 } else { slot::TAG_KIND_VALID };
                word(&ring, at + slot::STATUS).store(slot::USER | slot::TAG_VALID | kind, Ordering::Release);
            }
            let take = || {
                let socket = kernel.file.try_clone().expect("a descriptor");
                let mut socket = PacketSocket { socket, ring: Some(kernel.ring()) };
                let mut batch = ringway_switch::BatchStorage::new(16).into_batch();
                socket.collect(&mut batch, 1500);
                let frames = (0..batch.len()).map(|index| batch.frame(index));
                let taken: Vec<Vec<u8>> = frames
                    .map(|frame| {
                        let mut bytes = frame.head().0[..frame.head_len()].to_vec();
                        for rest in frame.rest() {
                            let start = bytes.len();
                            bytes.resize(start + rest.len(), 0);
                            assert!(rest.read(&mut bytes[start..]));
                        }
                        bytes
                    })
                    .collect();
                // Dead before it noted that.
                kernel.positions.packets().expect("a word").store(0, Ordering::Relaxed);
                taken
            };
            let with = |kind: [u8; 2]| [&frame[..12], &kind, &[0x01, 0x23], &frame[12..]].concat();
            let wanted = [with([0x81, 0]), with([0x88, 0xa8]), with([0x88, 0xa8])];
            assert_eq!(take(), wanted, "{len} bytes");
            assert_eq!(take(), wanted, "{len} bytes, by a successor");
        }
    }

    #[test]
    fn a_position_that_is_none_of_a_ring_is_refused() {
        let kernel = Kernel::new();
        for word in [SLOTS as u64, (SLOTS as u64 + 1) << 16, u64::MAX] {
            let position = kernel.positions.packets().expect("a word");
            position.store(word, Ordering::Relaxed);
            assert!(Ring::new(&kernel.file, Wanted::Group, position).is_err(), "{word}");
        }
    }
}
