//! A process port: frames stay in the ring while the program has them.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ringway_client::{AttachError, Port, RxRing, Shape, TxRing};

use super::descriptors::Descriptors;
use super::frame::{Frame, Way};
use crate::sockets;

/// Most slots that one look takes: no frame has more.
const LOOK: usize = 64;
/// Slots of a ring if the program does not say how large its buffer is: as many as libpcap's 2 MiB.
const SLOTS: u32 = 1024;
/// Fewest and most slots of a ring. A larger one would exceed what the daemon allows a port by default (`[attach] max_memory`), and
/// a program that asks for more than it can have gets less, as from libpcap.
const RING: RangeInclusive<u32> = 64..=16_384;

/// The receive ring of an attached port.
#[derive(Debug)]
pub struct Ring {
    port: Arc<Port>,
    rx: RxRing,
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
    /// Attaches. `buffer` is the size that the program asks for, in bytes; 0: the default. Returns the port and its transmit ring,
    /// too.
    pub fn attach(name: &str, buffer: usize) -> Result<(Ring, Arc<Port>, TxRing), AttachError> {
        let shape = Shape::default();
        let slots = match buffer {
            0 => SLOTS,
            bytes => {
                u32::try_from(bytes / shape.buffer_size as usize).unwrap_or(u32::MAX).clamp(*RING.start(), *RING.end())
            }
        };
        let mut port = Port::attach(sockets::attach(), name, Shape { rx_slots: slots, ..shape })?;
        let (tx, rx) = port.take_rings();
        let (Some(tx), Some(rx)) = (tx.into_iter().next(), rx.into_iter().next()) else {
            return Err(AttachError::Memory(std::io::Error::other("a port without rings")));
        };
        let port = Arc::new(port);
        let looked = Vec::with_capacity(LOOK);
        let ring = Ring { port: Arc::clone(&port), rx, looked, at: 0, time: 0, held: 0, gathered: Vec::new() };
        Ok((ring, port, tx))
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
            self.rx.release(self.held);
            self.held = 0;
        }
    }

    pub fn look(&mut self) -> bool {
        self.release();
        self.looked.clear();
        self.at = 0;
        self.gathered.clear();
        let mut slots = 0;
        for piece in self.rx.peek(LOOK) {
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
        self.at < self.looked.len() || self.rx.want_call()
    }

    pub fn disarm(&mut self) {
        self.rx.want_no_call();
    }

    pub fn descriptors(&self) -> Descriptors<'_> {
        descriptors(&self.port)
    }

    pub fn ended(&self) -> Option<String> {
        self.port.ended()
    }
}

/// What a thread waits for that receives or sends by this port.
pub fn descriptors(port: &Port) -> Descriptors<'_> {
    Descriptors { calls: Some(port.call_fd()), end: port.connection_fd() }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    // By libc: rustix would look for the kernel's clock in memory that valgrind takes away.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
