//! An open TAP device or macvtap: frames from it, and the offloads that it takes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringway_keeper::Guard;
use ringway_memory::{Mapping, View};
use ringway_switch::{
    Accepts, Armed, BadOffload, Batch, Discarded, DropReason, Input, InputCapabilities, MAX_FRAME, Offload, PortFault,
    WaitingPlace, WakeOn,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device_closing::ClosedApart;
use crate::kept::unreadable;

/// Bytes offered to a read behind the header: the longest frame and one byte more. The kernel truncates frames to the offered
/// size, and the extra byte reveals frames that are too long.
const READ_BYTES: usize = MAX_FRAME + 1;
/// Most memory into which frames are read for one batch: 256 frames of 1,514 bytes take 384 KiB, which fits most second-level caches. A
/// batch ends early when it is full, for example after 7 segments of 64 KiB.
const BATCH_BYTES: usize = 512 * 1024;
/// Most bytes of frames that may wait for a limit: as many as a batch has. 1 Gbit/s brings them in 16 ms.
const HELD_BYTES: usize = 2 * 1024 * 1024;
/// Memory of these and of a batch, with what lies unused at its end. Pages behind those of one batch are touched only while frames wait.
const MEMORY_BYTES: usize = 2 * HELD_BYTES;
const LINE: usize = 64;
/// Memory for a frame of any length: what it takes when it is read, and what it may take afterwards.
const ROOM: usize = LINE + READ_BYTES + LINE + LINE;
const _: () = assert!(ROOM >= bytes_of(MAX_FRAME + 1));

/// What precedes each frame, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// `struct virtio_net_hdr`.
    Plain = Offload::BYTES as isize,
    /// `struct virtio_net_hdr_v1_hash_tunnel`.
    Tunnelled = Offload::TUNNELLED_BYTES as isize,
}

impl Header {
    pub(crate) const fn bytes(self) -> usize {
        self as usize
    }

    /// Decodes the header at the beginning of what was read.
    fn decode(self, read: View<'_>) -> Option<Result<Option<Offload>, BadOffload>> {
        match self {
            Header::Plain => {
                let mut header = [0; Offload::BYTES];
                read.read(&mut header).then(|| Offload::decode(&header))
            }
            Header::Tunnelled => {
                let mut header = [0; Offload::TUNNELLED_BYTES];
                read.read(&mut header).then(|| Offload::decode_tunnelled(&header))
            }
        }
    }
}

/// Sets of offloads, the preferred first, and the headers that tell of them. Kernels before 6.17 do not support tunnels, nor do macvtaps; kernels
/// before 6.2 do not support USO.
const OFFLOADS: [(libc::c_uint, Accepts, Header); 4] = [
    (SEGMENTED | USO | TUN_F_UDP_TUNNEL_GSO | TUN_F_UDP_TUNNEL_GSO_CSUM, Accepts::EVERYTHING, Header::Tunnelled),
    (SEGMENTED | USO, Accepts::UNTUNNELLED, Header::Plain),
    (SEGMENTED, Accepts::UNTUNNELLED.without(Accepts::USO), Header::Plain),
    (0, Accepts::NOTHING, Header::Plain),
];
const USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;
/// `include/uapi/linux/if_tun.h` of Linux 6.17; `libc` lacks these.
const TUN_F_UDP_TUNNEL_GSO: libc::c_uint = 0x80;
const TUN_F_UDP_TUNNEL_GSO_CSUM: libc::c_uint = 0x100;
const SEGMENTED: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN | libc::TUN_F_UFO;

/// An open device. What is here is closed before the keeper closes it, too: the device is gone then, if it was made for the port.
#[derive(Debug)]
pub(crate) struct DeviceFile {
    file: OwnedFd,
    _kept: Arc<Guard>,
}

impl DeviceFile {
    pub(crate) fn new(file: OwnedFd, kept: &Arc<Guard>) -> Self {
        Self { file, _kept: Arc::clone(kept) }
    }

    /// A device that nobody keeps.
    #[cfg(test)]
    pub(crate) fn of_test(file: OwnedFd) -> Self {
        let kept = Guard::new(&ringway_keeper::Link::default(), "test", &[], &[], None).expect("nothing is kept");
        Self::new(file, &Arc::new(kept))
    }
}

impl AsFd for DeviceFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The input of a TAP port. It reads every batch into the same private buffer, one frame after the other, so that
/// small frames take few cache lines and any MTU fits.
pub(crate) struct TapInput {
    device: Arc<ClosedApart<DeviceFile>>,
    header: Header,
    memory: Mapping,
    /// The frames in `memory`, in order. Those that wait for a limit stay there after a batch, and are the first of the next.
    frames: VecDeque<Held>,
    /// Number of frames to forget when the batch is released.
    used: usize,
    /// The last read found a frame, or failed for want of memory: no event tells of what is left.
    may_have_more: bool,
}

/// A frame in the memory of the input.
struct Held {
    /// Offset of its header's line.
    at: usize,
    len: usize,
    offload: Option<Offload>,
}

impl Held {
    /// Bytes of the memory that it takes: an odd number of cache lines. The beginnings of frames of equal length then fall into
    /// different cache sets.
    fn bytes(&self) -> usize {
        bytes_of(self.len)
    }
}

const fn bytes_of(len: usize) -> usize {
    ((1 + len.div_ceil(LINE)) | 1) * LINE
}

enum Read {
    Frame(usize),
    Nothing,
    NoMemory,
}

impl TapInput {
    pub(crate) fn new(device: Arc<ClosedApart<DeviceFile>>, header: Header) -> io::Result<Self> {
        let (memory, frames) = (Mapping::private(MEMORY_BYTES)?, VecDeque::with_capacity(ringway_switch::MAX_BATCH));
        Ok(Self { device, header, memory, frames, used: 0, may_have_more: false })
    }

    /// Offset at which the next frame is read: behind the last one, or at the front of the memory. `None`: there is no room.
    fn free(&self) -> Option<usize> {
        let (Some(first), Some(last)) = (self.frames.front(), self.frames.back()) else { return Some(0) };
        let at = last.at + last.bytes();
        let fits = |from: usize, to: usize| to.saturating_sub(from) >= ROOM;
        match at > first.at {
            true if fits(at, MEMORY_BYTES) => Some(at),
            true => fits(0, first.at).then_some(0),
            false => fits(at, first.at).then_some(at),
        }
    }

    /// Adds a frame in the memory to the batch.
    fn push<'m>(memory: &'m Mapping, held: &Held, batch: &mut Batch<'m>) {
        let Some(frame) = memory.view(held.at + LINE, held.len) else { return };
        match held.offload {
            None => batch.push(frame, held.len),
            Some(offload) => batch.push_offloaded(frame, held.len, offload),
        }
    }

    #[inline]
    fn read(&self, buffer: View<'_>) -> Result<Read, PortFault> {
        loop {
            // SAFETY: the view's bytes are mapped and writable while the view lives; nothing else refers to them.
            let read = unsafe { libc::read(self.device.as_fd().as_raw_fd(), buffer.as_ptr().cast(), buffer.len()) };
            if let Ok(len) = usize::try_from(read) {
                return Ok(Read::Frame(len));
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // No frame is there, or the device is down.
                Some(libc::EAGAIN | libc::EIO) => return Ok(Read::Nothing),
                Some(libc::ENOMEM | libc::ENOBUFS) => return Ok(Read::NoMemory),
                // EBADFD: the device was deleted. Other errors would not end by themselves either.
                _ => return Err(PortFault::DeviceLost),
            }
        }
    }
}

impl Input for TapInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.used = 0;
        self.may_have_more = true;
        while batch.room() > 0
            && let Some(held) = self.frames.get(self.used)
        {
            Self::push(&self.memory, held, batch);
            self.used += 1;
        }
        let (header, mut read_bytes) = (self.header.bytes(), 0);
        while batch.room() > 0 {
            let Some(at) = self.free().filter(|_| read_bytes + ROOM <= BATCH_BYTES) else {
                batch.note_more();
                break;
            };
            let Some(buffer) = self.memory.view(at + LINE - header, header + READ_BYTES) else { break };
            let read = match self.read(buffer)? {
                Read::Frame(read) => read,
                Read::NoMemory => break,
                Read::Nothing => {
                    self.may_have_more = false;
                    break;
                }
            };
            let (Some(decoded), Some(len)) = (self.header.decode(buffer), read.checked_sub(header)) else {
                batch.refuse(DropReason::Runt);
                continue;
            };
            match decoded {
                _ if len > MAX_FRAME => batch.refuse(DropReason::Oversize),
                Ok(offload) => {
                    let held = Held { at, len, offload };
                    Self::push(&self.memory, &held, batch);
                    read_bytes += held.bytes();
                    self.frames.push_back(held);
                    self.used += 1;
                }
                Err(_) => batch.refuse(DropReason::BadOffload),
            }
        }
        Ok(())
    }

    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: true, discard_like: false, waiting: WaitingPlace::Memory(HELD_BYTES) }
    }

    fn rewind(&mut self, frames: usize) {
        self.used = frames;
    }

    /// Reads only the header of each frame: the kernel drops the bytes beyond the offered size. It does not tell the
    /// length of the frame, so the count of bytes stays 0.
    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let held = self.frames.drain(..most.min(self.frames.len())).map(|held| held.len as u64);
        let mut discarded = held
            .fold(Discarded::default(), |sum, bytes| Discarded { frames: sum.frames + 1, bytes: sum.bytes + bytes });
        if !self.frames.is_empty() {
            return Ok(discarded);
        }
        let Some(buffer) = self.memory.view(0, self.header.bytes()) else { return Ok(discarded) };
        let mut last = Read::NoMemory;
        while discarded.frames < most as u64 {
            last = self.read(buffer)?;
            if !matches!(last, Read::Frame(_)) {
                break;
            }
            discarded.frames += 1;
        }
        self.may_have_more = !matches!(last, Read::Nothing);
        Ok(discarded)
    }

    /// Forgets the frames of the batch: the memory belongs to this port.
    fn release(&mut self) {
        self.frames.drain(..std::mem::take(&mut self.used));
    }

    fn pending(&mut self) -> bool {
        self.may_have_more || !self.frames.is_empty()
    }

    fn has_frames(&mut self) -> bool {
        !self.frames.is_empty()
            || poll(&mut [PollFd::from_borrowed_fd(self.device.as_fd(), PollFlags::IN)], Some(&Timespec::default()))
                .is_ok_and(|ready| ready > 0)
    }

    /// The kernel reports frames by the device's descriptor.
    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        Armed::with_kick(wake_on == WakeOn::Frames && self.pending())
    }

    fn disarm(&mut self) {}
}

/// The offloads that a device takes, and the header that tells of them, by their number in [`OFFLOADS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offloads(usize);

impl Offloads {
    /// Those of packet sockets. Kernels before 6.2 refuse USO.
    pub(crate) const OF_PACKET_SOCKETS: Self = Self(2);

    /// Those with this number.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn numbered(number: u128) -> io::Result<Self> {
        let number = usize::try_from(number).ok().filter(|number| *number < OFFLOADS.len());
        number.map(Self).ok_or_else(unreadable)
    }

    pub(crate) fn number(self) -> usize {
        self.0
    }

    pub(crate) fn accepts(self) -> Accepts {
        OFFLOADS[self.0].1
    }

    pub(crate) fn header(self) -> Header {
        OFFLOADS[self.0].2
    }
}

/// Sets header size and offloads. A persistent device may have other settings, from an earlier user.
pub(crate) fn set_offloads(tap: BorrowedFd<'_>) -> io::Result<Offloads> {
    for (number, (flags, _, header)) in OFFLOADS.into_iter().enumerate() {
        let bytes = header.bytes() as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int, and `bytes` outlives the call.
        if unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const bytes) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: TUNSETOFFLOAD takes a number, not a pointer.
        if unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) } == 0 {
            return Ok(Offloads(number));
        }
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_port::testing::{frame_sockets, is_readable, visit_until_asleep};

    #[test]
    fn a_device_is_pending_until_a_read_finds_nothing() {
        let (device, stack) = frame_sockets();
        let mut input = TapInput::new(
            Arc::new(ClosedApart::new(DeviceFile::of_test(device.try_clone().expect("a descriptor")))),
            Header::Plain,
        )
        .expect("memory");
        for (frames, most) in [(0, 4), (3, 4), (4, 4), (9, 4), (100, 1)] {
            for number in 0..frames {
                // Every third one is no frame.
                let len = if number % 3 == 2 { 1 } else { Offload::BYTES + 60 };
                rustix::io::write(&stack, &vec![0; len]).expect("a frame");
            }
            assert_eq!(visit_until_asleep(&mut input, || is_readable(&device), most), frames - frames / 3);
            rustix::io::write(&stack, &[0; 70]).expect("a frame");
            input.discard(1).expect("no fault");
            assert!(input.pending(), "nothing tells that there is no other frame");
            assert_eq!(input.discard(1).expect("no fault"), Discarded::default());
            assert!(!input.pending());
        }
    }

    #[test]
    fn frames_that_wait_are_the_first_of_the_next_batch_however_many_were_read_since() {
        let (device, stack) = frame_sockets();
        let mut input =
            TapInput::new(Arc::new(ClosedApart::new(DeviceFile::of_test(device))), Header::Plain).expect("memory");
        let (mut sent, mut taken) = (0_u32, 0_u32);
        // More than the memory holds several times, with long frames among them.
        while taken < 2_000 {
            while sent < taken + 30 {
                let len = if sent.is_multiple_of(8) { 60_000 } else { 1_000 };
                let mut frame = vec![0; Offload::BYTES + len];
                frame[Offload::BYTES..][..4].copy_from_slice(&sent.to_be_bytes());
                if rustix::io::write(&stack, &frame).is_err() {
                    break;
                }
                sent += 1;
            }
            let mut batch = ringway_switch::BatchStorage::new(16).into_batch();
            input.collect(&mut batch).expect("no fault");
            let numbers: Vec<u32> = (0..batch.len())
                .map(|index| u32::from_be_bytes(*batch.head(index).first_chunk().expect("bytes")))
                .collect();
            assert_eq!(numbers, (taken..).take(numbers.len()).collect::<Vec<_>>());
            assert!(!numbers.is_empty());
            drop(batch);
            // At least one passes, and the others wait.
            let passing = 1 + taken as usize % numbers.len();
            input.rewind(passing);
            input.release();
            taken += passing as u32;
            assert!(input.pending() && (passing == numbers.len() || input.has_frames()));
            if taken.is_multiple_of(7) && passing < numbers.len() {
                assert_eq!(input.discard(1).expect("no fault").frames, 1);
                taken += 1;
            }
        }
    }

    #[test]
    fn as_much_as_a_batch_has_may_wait_and_each_batch_reads_its_part_of_it() {
        let (device, stack) = frame_sockets();
        let mut input =
            TapInput::new(Arc::new(ClosedApart::new(DeviceFile::of_test(device))), Header::Plain).expect("memory");
        assert_eq!(input.capabilities().waiting, WaitingPlace::Memory(HELD_BYTES));
        let (mut waiting, mut is_full) = (0, false);
        while !is_full {
            while rustix::io::write(&stack, &vec![0; Offload::BYTES + 60_000]).is_ok() {}
            let mut batch = ringway_switch::BatchStorage::new(ringway_switch::MAX_BATCH).into_batch();
            input.collect(&mut batch).expect("no fault");
            let there = 60_000 * batch.len();
            assert!(there > waiting && there - waiting <= BATCH_BYTES, "{there} beside {waiting}");
            (waiting, is_full) = (there, batch.room() == 0);
            drop(batch);
            input.rewind(0);
            input.release();
        }
        assert!(waiting >= HELD_BYTES, "{waiting}");
    }

    #[test]
    fn a_device_is_asked_whether_it_has_frames() {
        let (device, stack) = rustix::pipe::pipe().expect("a pipe");
        let mut input =
            TapInput::new(Arc::new(ClosedApart::new(DeviceFile::of_test(device))), Header::Plain).expect("memory");
        assert!(!input.has_frames());
        rustix::io::write(&stack, &[0; 60]).expect("a frame");
        assert!(input.has_frames() && !input.pending());
    }
}
