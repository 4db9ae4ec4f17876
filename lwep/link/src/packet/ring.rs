//! Received frames: a ring of slots that the kernel fills (`TPACKET_V2`), which is read without a system call. recvmmsg(2) took 500 ns for
//! a frame in a batch and 1,400 ns for a single one, where the kernel's copy into the ring takes 240 ns and a further one out of it 20 ns.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_abi::Offload;
use ringway_memory::Mapping;
use ringway_netdevice::packet;

/// Bytes of a slot that are not the frame's: 76 of them are before it.
const OVERHEAD: usize = 128;
/// Slots of a block, which is memory that the kernel allocates together: whole pages, as slots have whole KiB.
const BLOCK: usize = 4;
/// The ring has about so many bytes, and a number of slots between these.
const BYTES: usize = 4 << 20;
const LEAST_SLOTS: usize = 64;
const MOST_SLOTS: usize = 1024;

/// Places in `struct tpacket2_hdr` (`include/uapi/linux/if_packet.h`), and values of the first.
mod slot {
    pub(super) const STATUS: usize = 0;
    pub(super) const LEN: usize = 4;
    pub(super) const TAKEN: usize = 8;
    pub(super) const OFFSETS: usize = 12;
    pub(super) const KERNEL: u32 = 0;
    pub(super) const USER: u32 = 1;
}

/// The ring of a socket.
pub(super) struct Ring {
    memory: Mapping,
    slot_bytes: usize,
    slots: usize,
    /// The slot that is filled next.
    next: usize,
}

/// The frame in a slot.
pub(super) struct Arrived<'a> {
    /// `struct virtio_net_hdr`.
    pub(super) header: [u8; Offload::BYTES],
    pub(super) frame: &'a [u8],
}

impl Ring {
    /// Makes the ring of a socket that has `PACKET_VNET_HDR`, for frames of up to `longest` bytes.
    pub(super) fn open(socket: &OwnedFd, longest: usize) -> io::Result<Ring> {
        packet::set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        let slot_bytes = (longest + OVERHEAD).next_multiple_of(1024);
        let slots = (BYTES / slot_bytes).clamp(LEAST_SLOTS, MOST_SLOTS) / BLOCK * BLOCK;
        let request = libc::tpacket_req {
            tp_block_size: (BLOCK * slot_bytes) as u32,
            tp_block_nr: (slots / BLOCK) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        packet::set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Mapping::shared(socket.as_fd(), slots * slot_bytes)?;
        Ok(Ring { memory, slot_bytes, slots, next: 0 })
    }

    /// Returns true if there is a frame.
    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        self.word(slot::STATUS).load(Ordering::Acquire) & slot::USER != 0
    }

    /// Returns the next frame, if there is one and it is whole.
    #[inline]
    pub(super) fn frame(&self) -> Option<Arrived<'_>> {
        if !self.has_frame() {
            return None;
        }
        let [len, taken, offsets] =
            [slot::LEN, slot::TAKEN, slot::OFFSETS].map(|at| self.word(at).load(Ordering::Relaxed));
        let (start, len) = ((offsets & 0xffff) as usize, len as usize);
        let whole = self.memory.view(self.next * self.slot_bytes, self.slot_bytes)?;
        let view = whole.sub(start, len).filter(|_| taken as usize >= len)?;
        let mut header = [0; Offload::BYTES];
        let _ = whole.sub(start.checked_sub(Offload::BYTES)?, Offload::BYTES)?.read(&mut header);
        // SAFETY: the bytes are mapped as long as `self`, and the kernel writes to no slot with a frame until `release` gives it back, which
        // needs `self` alone.
        let frame = unsafe { std::slice::from_raw_parts(view.as_ptr(), len) };
        Some(Arrived { header, frame })
    }

    /// Gives the slot of the next frame back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.word(slot::STATUS).store(slot::KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        let word = self.memory.view(self.next * self.slot_bytes + at, 4).and_then(|view| view.words32()?.first());
        word.expect("slots and words are aligned, and in the ring")
    }
}
