//! A process port: frames stay in the ring while the program has them.

use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringway_client::{AttachError, Port, Shape};
use rustix::time::Timespec;

use super::frame::{Frame, Way};
use crate::sockets;

/// Most slots that one look takes: no frame has more.
const LOOK: usize = 64;
/// Slots of a ring if the program does not say how large its buffer is: as many as libpcap's 2 MiB.
const SLOTS: u32 = 1024;
/// Longest wait at the end of a handle for the switch to take what was sent.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How often that wait looks.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };
/// Fewest and most slots of a ring. A larger one would exceed what the daemon allows a port by default (`[attach] max_memory`), and
/// a program that asks for more than it can have gets less, as from libpcap.
const RING: RangeInclusive<u32> = 64..=16_384;

/// The rings of an attached port.
#[derive(Debug)]
pub struct Ring {
    port: Port,
    /// The frames of the last look. `at` is the next one.
    looked: Vec<Item>,
    at: usize,
    /// When the last look was.
    time: u64,
    /// Slots of the frame that the program has.
    held: usize,
    /// A frame of several slots.
    gathered: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    data: *const u8,
    len: usize,
    slots: usize,
}

impl Ring {
    /// Attaches. `buffer` is the size that the program asks for, in bytes; 0: the default.
    pub fn attach(name: &str, buffer: usize) -> Result<Ring, AttachError> {
        let shape = Shape::default();
        let slots = match buffer {
            0 => SLOTS,
            bytes => {
                u32::try_from(bytes / shape.buffer_size as usize).unwrap_or(u32::MAX).clamp(*RING.start(), *RING.end())
            }
        };
        let port = Port::attach(sockets::attach(), name, Shape { rx_slots: slots, ..shape })?;
        Ok(Ring { port, looked: Vec::with_capacity(LOOK), at: 0, time: 0, held: 0, gathered: Vec::new() })
    }

    pub fn slots(&self) -> usize {
        self.port.layout().shape.rx_slots as usize
    }

    #[inline]
    pub fn next(&mut self) -> Option<Frame> {
        self.release();
        let item = *self.looked.get(self.at)?;
        self.at += 1;
        self.held = item.slots;
        Some(Frame { data: item.data, present: item.len, len: item.len, time: self.time, way: Way::In })
    }

    #[inline]
    pub fn release(&mut self) {
        if self.held > 0 {
            self.port.rx().release(self.held);
            self.held = 0;
        }
    }

    pub fn look(&mut self) -> bool {
        self.release();
        self.looked.clear();
        self.at = 0;
        self.gathered.clear();
        let mut slots = 0;
        for piece in self.port.rx().peek(LOOK) {
            let is_part = piece.more || slots > 0;
            if !is_part {
                self.looked.push(Item { data: piece.bytes.as_ptr(), len: piece.bytes.len(), slots: 1 });
                continue;
            }
            // A frame of several slots is the only one of its look.
            if !self.looked.is_empty() {
                break;
            }
            self.gathered.extend_from_slice(piece.bytes);
            slots += 1;
            if !piece.more {
                break;
            }
        }
        if slots > 0 {
            let (data, len) = (self.gathered.as_ptr(), self.gathered.len());
            self.looked.push(Item { data, len, slots });
        }
        if self.looked.is_empty() {
            return false;
        }
        self.time = now();
        true
    }

    pub fn arm(&mut self) -> bool {
        self.at < self.looked.len() || self.port.want_rx()
    }

    pub fn disarm(&mut self) {
        self.port.want_nothing();
    }

    pub fn clear(&mut self) {
        // The switch has made the eventfd non-blocking.
        let _ = rustix::io::read(self.port.call_fd(), &mut [0; 8]);
    }

    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.port.call_fd(), self.port.connection_fd()]
    }

    pub fn ended(&mut self) -> Option<String> {
        self.port.ended()
    }

    /// Queues a frame and publishes it. Returns false when there is no room.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let queued = self.port.tx().push(frame);
        if queued {
            self.port.flush();
        }
        queued
    }

    /// Asks for a wake-up when there is room to send. Returns true if there is room already.
    pub fn arm_send(&mut self) -> bool {
        self.port.want_tx()
    }
}

impl Drop for Ring {
    /// Waits until the switch has taken what was sent: a program may send and close at once.
    fn drop(&mut self) {
        let all = self.port.layout().shape.tx_slots as usize - 1;
        let deadline = Instant::now() + TAKEN_WITHIN;
        while self.port.tx().room() < all && Instant::now() < deadline && self.port.ended().is_none() {
            // Not libc's sleep, in which `pthread_cancel` would end the thread.
            let _ = rustix::thread::nanosleep(&LOOK_AGAIN);
        }
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    // By libc: rustix would look for the kernel's clock in memory that valgrind takes away.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
