//! The places of all parts in a client's memory (`sys/net/netmap.h`, `struct netmap_if` and `struct netmap_ring`).

use std::ops::Range;

use crate::doorbell::PAIR_BYTES;
use crate::slot::{SLOT_BYTES, Slot};

/// `NETMAP_API` of the layout.
pub const NETMAP_API: u32 = 14;
/// The first buffer for frames. Buffers 0 and 1 are reserved.
pub const FIRST_BUFFER: u32 = 2;
/// Most slots of a frame (`NETMAP_MAX_FRAGS`).
pub const MAX_SLOTS_PER_FRAME: usize = 64;
/// Longest frame in bytes, without FCS.
pub const MAX_FRAME: usize = 65_535;
/// Longest frame with an offload request: an Ethernet header, an IPv6 header and 65,535 bytes (virtio 1.3, 5.1.6.3).
pub const MAX_OFFLOADED_FRAME: usize = 65_589;

/// Offsets in `netmap_if`.
pub mod netmap_if {
    /// `ni_name`, 16 bytes.
    pub const NAME: usize = 0;
    /// `ni_version`, u32.
    pub const VERSION: usize = 16;
    /// `ni_tx_rings`, u32.
    pub const TX_RINGS: usize = 24;
    /// `ni_rx_rings`, u32.
    pub const RX_RINGS: usize = 28;
    /// `ni_bufs_head`, u32: first extra buffer, each names the next in its first four bytes.
    pub const BUFS_HEAD: usize = 32;
    /// `ni_host_tx_rings`, u32: host transmit rings in `ring_ofs[]`.
    pub const HOST_TX_RINGS: usize = 36;
    /// `ni_host_rx_rings`, u32: host receive rings in `ring_ofs[]`.
    pub const HOST_RX_RINGS: usize = 40;
    /// `ring_ofs[]`, i64 each: transmit, host transmit, receive, host receive.
    pub const RING_OFS: usize = 56;
}

/// Offsets in `netmap_ring`.
pub mod netmap_ring {
    /// `buf_ofs`, i64: buffer 0 relative to the ring.
    pub const BUF_OFS: usize = 0;
    /// `num_slots`, u32.
    pub const NUM_SLOTS: usize = 8;
    /// `nr_buf_size`, u32.
    pub const BUF_SIZE: usize = 12;
    /// `ringid`, u16.
    pub const RING_ID: usize = 16;
    /// `dir`, u16: 0 transmit, 1 receive.
    pub const DIR: usize = 18;
    /// `head`, u32.
    pub const HEAD: usize = 20;
    /// `cur`, u32.
    pub const CUR: usize = 24;
    /// `tail`, u32.
    pub const TAIL: usize = 28;
    /// `slot[]`.
    pub const SLOTS: usize = 256;
}

const CACHE_LINE: usize = 64;
/// Offset of the rings' locks in a port's own part: they end with the page of `netmap_if`.
const LOCKS: usize = PAGE - 2 * 16 * CACHE_LINE;

/// Numbers of rings and slots, and number and size of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Transmit rings: 1 to 16.
    pub tx_rings: u16,
    /// Receive rings: 1 to 16.
    pub rx_rings: u16,
    /// Slots of each transmit ring: 4 to 32,768. One of them is always empty.
    pub tx_slots: u32,
    /// Slots of each receive ring: 4 to 32,768. One of them is always empty.
    pub rx_slots: u32,
    /// Bytes of a buffer: 128 to 65,472, a multiple of 64. An odd multiple spreads the buffers over the sets of the
    /// caches.
    pub buffer_size: u32,
    /// Buffers in addition to one for each slot: up to 65,536. [`Layout::extra_buffers`] numbers them; `ni_bufs_head` is 0.
    pub extra_buffers: u32,
    /// Frames may request offloads in both directions, and every frame begins with a header: see [`crate::offload`].
    pub offload: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            tx_rings: 1,
            rx_rings: 1,
            tx_slots: 512,
            rx_slots: 512,
            buffer_size: 2112,
            extra_buffers: 0,
            offload: false,
        }
    }
}

impl Shape {
    fn check(&self) -> Result<(), LayoutError> {
        let within = |what, asked: u32, low: u32, high: u32, allowed| {
            if (low..=high).contains(&asked) { Ok(()) } else { Err(LayoutError { what, asked: asked.into(), allowed }) }
        };
        within("tx_rings", self.tx_rings.into(), 1, MAX_RINGS.into(), "1 to 16")?;
        within("rx_rings", self.rx_rings.into(), 1, MAX_RINGS.into(), "1 to 16")?;
        within("tx_slots", self.tx_slots, MIN_SLOTS, MAX_SLOTS, "4 to 32768")?;
        within("rx_slots", self.rx_slots, MIN_SLOTS, MAX_SLOTS, "4 to 32768")?;
        within("buffer_size", self.buffer_size, MIN_BUFFER, MAX_BUFFER, "128 to 65472, a multiple of 64")?;
        if !self.buffer_size.is_multiple_of(64) {
            let allowed = "128 to 65472, a multiple of 64";
            return Err(LayoutError { what: "buffer_size", asked: self.buffer_size.into(), allowed });
        }
        within("extra_buffers", self.extra_buffers, 0, MAX_EXTRA, "0 to 65536")
    }

    /// Returns the number of slots of all rings. Each begins with a buffer of its own.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::from(self.tx_rings) * self.tx_slots + u32::from(self.rx_rings) * self.rx_slots
    }

    /// Returns the bytes of a port's own part, a multiple of 4,096: a page for `netmap_if`, the doorbells and the rings.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        let tx = usize::from(self.tx_rings) * ring_bytes(self.tx_slots);
        self.header_bytes() + tx + usize::from(self.rx_rings) * ring_bytes(self.rx_slots)
    }

    fn header_bytes(&self) -> usize {
        let pairs = usize::from(self.tx_rings.max(self.rx_rings));
        (PAGE + PAGE + pairs * PAIR_BYTES).next_multiple_of(PAGE)
    }
}

fn ring_bytes(slots: u32) -> usize {
    (netmap_ring::SLOTS + slots as usize * SLOT_BYTES).next_multiple_of(PAGE)
}

/// Most rings of one direction.
pub const MAX_RINGS: u16 = 16;
/// Most slots of one ring.
pub const MAX_SLOTS: u32 = 32_768;
/// Most extra buffers of a port or of a registration.
pub const MAX_EXTRA: u32 = 65_536;
const MIN_SLOTS: u32 = 4;
const MIN_BUFFER: u32 = 128;
const MAX_BUFFER: u32 = 65_472;
/// Largest unit of external memory.
pub const MAX_UNIT: u32 = 64;
/// Parts of the memory begin on pages of this size.
pub const PAGE: usize = 4096;

/// A [`Shape`] that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutError {
    /// Which number is out of range.
    pub what: &'static str,
    /// The requested number.
    pub asked: u64,
    /// The allowed range.
    pub allowed: &'static str,
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} is not possible: {}", self.what, self.asked, self.allowed)
    }
}

impl std::error::Error for LayoutError {}

/// The place of a port in a region: a memory that several ports share, with one pool of buffers for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset of the port's own part, a multiple of 4,096: its doorbell and its rings.
    pub base: usize,
    /// Offset of buffer 0 of the pool.
    pub buffers: usize,
    /// Number of buffers of the pool, including the two reserved ones.
    pub buffer_count: u32,
    /// Size of the region in bytes.
    pub bytes: usize,
}

/// Memory of a program that the buffers of its port lie in (external memory). Buffer `n` begins at byte `n * unit`: buffers
/// overlap, so that a slot can name any multiple of `unit`, as far as a whole buffer lies in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// Bytes of the memory, from the beginning of its file.
    pub bytes: u64,
    /// A power of two from 1 to 64. The memory has less than 2^32 units.
    pub unit: u32,
    /// The buffer of the first slot: at least 2. The buffers of the other slots and the extra buffers follow, each behind
    /// the one before.
    pub first: u32,
}

/// What one registration of a port finds in its `netmap_if`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Offset of the `netmap_if`.
    pub at: usize,
    /// The name, cut to 15 bytes.
    pub name: &'a str,
    /// The bound transmit rings.
    pub tx: Range<u16>,
    /// The bound receive rings.
    pub rx: Range<u16>,
}

/// Offsets in the shared memory of one client. Both sides compute them from the same [`Shape`], colour and [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The shape.
    pub shape: Shape,
    /// Offset of the port's own part. A memory with one port begins with it.
    pub base: usize,
    /// Offset behind the port's own part: behind its last ring.
    pub end: usize,
    /// Offset of the first doorbell block.
    pub doorbell: usize,
    /// Offset of the first transmit ring.
    tx_ring: usize,
    tx_stride: usize,
    rx_ring: usize,
    rx_stride: usize,
    /// Offset of buffer 0, in the external memory if the port has one.
    pub buffers: usize,
    /// Number of buffers, including the two reserved ones.
    pub buffer_count: u32,
    /// Bytes from the beginning of a buffer to that of the next.
    pub unit: u32,
    /// The buffer of the first slot.
    first: u32,
    /// Distance between the buffers of two slots.
    step: u32,
    /// Size of the memory in bytes, a multiple of the page size. Does not include external memory.
    pub bytes: usize,
}

impl Layout {
    /// Computes the layout of a memory with one port. `colour` (any number; 16 colours differ) shifts the doorbell within
    /// its page, so that the doorbells of many clients, which each start on a page of their own, do not share a few cache
    /// sets.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn new(shape: Shape, colour: u32) -> Result<Self, LayoutError> {
        shape.check()?;
        let buffer_count = FIRST_BUFFER + shape.slots() + shape.extra_buffers;
        let buffers = shape.own_bytes();
        let bytes = (buffers + buffer_count as usize * shape.buffer_size as usize).next_multiple_of(PAGE);
        Ok(Self::at(shape, colour, Place { base: 0, buffers, buffer_count, bytes }))
    }

    /// Computes the layout of a port whose buffers lie in external memory.
    ///
    /// # Errors
    /// A number is out of range, or the buffers of all slots do not fit.
    pub fn with_external(shape: Shape, colour: u32, external: External) -> Result<Self, LayoutError> {
        shape.check()?;
        let External { bytes, unit, first } = external;
        if !unit.is_power_of_two() || unit > MAX_UNIT {
            return Err(LayoutError { what: "unit", asked: unit.into(), allowed: "a power of two from 1 to 64" });
        }
        if first < FIRST_BUFFER {
            return Err(LayoutError { what: "first", asked: first.into(), allowed: "a buffer, 2 or more" });
        }
        // The unit divides the size: both are multiples of powers of two up to 64.
        let step = shape.buffer_size / unit;
        let own = u64::from(shape.slots() + shape.extra_buffers) * u64::from(step);
        let needed = (u64::from(first) + own) * u64::from(unit);
        if bytes < needed || bytes / u64::from(unit) > u64::from(u32::MAX) {
            let allowed = "the buffers of all slots must fit, and at most 2^32 - 1 units";
            return Err(LayoutError { what: "bytes", asked: bytes, allowed });
        }
        let last = (bytes - u64::from(shape.buffer_size)) / u64::from(unit);
        let place = Place { base: 0, buffers: 0, buffer_count: last as u32 + 1, bytes: shape.own_bytes() };
        Ok(Self { unit, first, step, ..Self::at(shape, colour, place) })
    }

    /// Computes the layout of a port in a region. The region's buffers have the shape's size. The shape's extra buffers are
    /// not looked at: each registration has its own.
    ///
    /// # Errors
    /// A number is out of range, or the port or the pool reaches beyond the region.
    pub fn in_region(shape: Shape, colour: u32, place: Place) -> Result<Self, LayoutError> {
        shape.check()?;
        let Place { base, buffers, buffer_count, bytes } = place;
        let outside = |what, asked: usize, allowed| Err(LayoutError { what, asked: asked as u64, allowed });
        if !base.is_multiple_of(PAGE) || base.checked_add(shape.own_bytes()).is_none_or(|end| end > buffers) {
            return outside("base", base, "a page of the region before its buffers");
        }
        if !buffers.is_multiple_of(PAGE) || buffers > bytes {
            return outside("buffers", buffers, "a page of the region");
        }
        let pool = (buffer_count as usize).checked_mul(shape.buffer_size as usize);
        if buffer_count <= FIRST_BUFFER || pool.is_none_or(|pool| pool > bytes - buffers) {
            return outside("buffer_count", buffer_count as usize, "more than 2, within the region");
        }
        Ok(Self::at(shape, colour, place))
    }

    fn at(shape: Shape, colour: u32, place: Place) -> Self {
        let Place { base, buffers, buffer_count, bytes } = place;
        let colours = PAGE / PAIR_BYTES;
        let doorbell = base + PAGE + (colour as usize % colours) * PAIR_BYTES;
        let (tx_stride, rx_stride) = (ring_bytes(shape.tx_slots), ring_bytes(shape.rx_slots));
        let tx_ring = base + shape.header_bytes();
        let rx_ring = tx_ring + usize::from(shape.tx_rings) * tx_stride;
        let end = base + shape.own_bytes();
        Self {
            shape,
            base,
            end,
            doorbell,
            tx_ring,
            tx_stride,
            rx_ring,
            rx_stride,
            buffers,
            buffer_count,
            unit: shape.buffer_size,
            first: FIRST_BUFFER,
            step: 1,
            bytes,
        }
    }

    /// Returns true if the buffers lie in external memory.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.unit != self.shape.buffer_size
    }

    /// Returns the offset of a transmit ring.
    #[must_use]
    pub fn tx_ring(&self, ring: u16) -> usize {
        self.tx_ring + usize::from(ring) * self.tx_stride
    }

    /// Returns the offset of a receive ring.
    #[must_use]
    pub fn rx_ring(&self, ring: u16) -> usize {
        self.rx_ring + usize::from(ring) * self.rx_stride
    }

    /// Returns the offset of a ring pair's doorbell block.
    #[must_use]
    pub fn doorbell(&self, pair: u16) -> usize {
        self.doorbell + usize::from(pair) * PAIR_BYTES
    }

    /// Returns the offset of a u64 by which the clients of a transmit ring take turns: behind `netmap_if`, in a cache line of its own.
    #[must_use]
    pub fn tx_lock(&self, ring: u16) -> usize {
        self.base + LOCKS + usize::from(ring) * 2 * CACHE_LINE
    }

    /// As [`Layout::tx_lock`], of a receive ring.
    #[must_use]
    pub fn rx_lock(&self, ring: u16) -> usize {
        self.tx_lock(ring) + CACHE_LINE
    }

    /// Returns the initial buffer of slot `slot` of transmit ring `ring`.
    #[must_use]
    pub fn first_tx_buffer(&self, ring: u16, slot: u32) -> u32 {
        self.own_buffer(u32::from(ring) * self.shape.tx_slots + slot)
    }

    /// Returns the initial buffer of slot `slot` of receive ring `ring`.
    #[must_use]
    pub fn first_rx_buffer(&self, ring: u16, slot: u32) -> u32 {
        let sent = u32::from(self.shape.tx_rings) * self.shape.tx_slots;
        self.own_buffer(sent + u32::from(ring) * self.shape.rx_slots + slot)
    }

    /// Returns the extra buffers.
    pub fn extra_buffers(&self) -> impl Iterator<Item = u32> {
        let slots = self.shape.slots();
        let layout = *self;
        (slots..slots + self.shape.extra_buffers).map(move |number| layout.own_buffer(number))
    }

    fn own_buffer(&self, number: u32) -> u32 {
        self.first + number * self.step
    }

    /// Returns the offset of a buffer.
    #[must_use]
    pub fn buffer(&self, index: u32) -> usize {
        self.buffers + index as usize * self.unit as usize
    }

    /// Calls `write` with the initial contents, as offsets and little-endian bytes, to be written to zeroed memory: the
    /// words of `netmap_if`, of each `netmap_ring` and of every slot. The client can overwrite them. No buffer is written:
    /// each would be a page to fault in.
    pub fn initial_words(&self, name: &str, mut write: impl FnMut(usize, &[u8])) {
        let ifname: Vec<u8> = name.bytes().take(15).collect();
        write(netmap_if::NAME, &ifname);
        write(netmap_if::VERSION, &NETMAP_API.to_le_bytes());
        write(netmap_if::TX_RINGS, &u32::from(self.shape.tx_rings).to_le_bytes());
        write(netmap_if::RX_RINGS, &u32::from(self.shape.rx_rings).to_le_bytes());
        // `ring_ofs[]`: transmit rings, one host transmit ring, receive rings, one host receive ring. The host rings
        // are not bound (0).
        let offset_at = |index: usize| netmap_if::RING_OFS + 8 * index;
        for ring in 0..self.shape.tx_rings {
            write(offset_at(ring.into()), &(self.tx_ring(ring) as i64).to_le_bytes());
            self.ring_words(self.tx_ring(ring), ring, 0, &mut write);
            for slot in 0..self.shape.tx_slots {
                let first = Slot { buffer: self.first_tx_buffer(ring, slot), len: 0, flags: 0 };
                write(
                    self.tx_ring(ring) + netmap_ring::SLOTS + slot as usize * SLOT_BYTES,
                    &first.to_word().to_le_bytes(),
                );
            }
        }
        for ring in 0..self.shape.rx_rings {
            let index = usize::from(self.shape.tx_rings) + 1 + usize::from(ring);
            write(offset_at(index), &(self.rx_ring(ring) as i64).to_le_bytes());
            self.ring_words(self.rx_ring(ring), ring, 1, &mut write);
            for slot in 0..self.shape.rx_slots {
                let first = Slot { buffer: self.first_rx_buffer(ring, slot), len: 0, flags: 0 };
                write(
                    self.rx_ring(ring) + netmap_ring::SLOTS + slot as usize * SLOT_BYTES,
                    &first.to_word().to_le_bytes(),
                );
            }
        }
    }

    /// Calls `write` with the initial contents of the port's rings in a region, as [`Layout::initial_words`] does: the
    /// words of each `netmap_ring` and of every slot. `buffers` gives the buffer of each slot.
    pub fn ring_contents(&self, mut buffers: impl FnMut() -> u32, mut write: impl FnMut(usize, &[u8])) {
        let tx = (0..self.shape.tx_rings).map(|ring| (self.tx_ring(ring), ring, 0, self.shape.tx_slots));
        let rx = (0..self.shape.rx_rings).map(|ring| (self.rx_ring(ring), ring, 1, self.shape.rx_slots));
        for (at, ring, dir, slots) in tx.chain(rx) {
            self.ring_words(at, ring, dir, &mut write);
            for slot in 0..slots as usize {
                let first = Slot { buffer: buffers(), len: 0, flags: 0 };
                write(at + netmap_ring::SLOTS + slot * SLOT_BYTES, &first.to_word().to_le_bytes());
            }
        }
    }

    /// Calls `write` with the contents of a registration's `netmap_if`. A ring that is not bound has offset 0. The list of
    /// extra buffers is empty.
    pub fn interface_contents(&self, interface: &Interface<'_>, mut write: impl FnMut(usize, &[u8])) {
        let Interface { at, name, ref tx, ref rx } = *interface;
        let ifname: Vec<u8> = name.bytes().take(15).collect();
        write(at + netmap_if::NAME, &ifname);
        write(at + netmap_if::VERSION, &NETMAP_API.to_le_bytes());
        let (tx_rings, rx_rings) = (self.shape.tx_rings, self.shape.rx_rings);
        write(at + netmap_if::TX_RINGS, &u32::from(tx_rings).to_le_bytes());
        write(at + netmap_if::RX_RINGS, &u32::from(rx_rings).to_le_bytes());
        write(at + netmap_if::HOST_TX_RINGS, &1u32.to_le_bytes());
        write(at + netmap_if::HOST_RX_RINGS, &1u32.to_le_bytes());
        write(at + netmap_if::BUFS_HEAD, &0u32.to_le_bytes());
        let tx = tx.clone().filter(|&ring| ring < tx_rings).map(|ring| (ring, self.tx_ring(ring)));
        let rx = rx.clone().filter(|&ring| ring < rx_rings).map(|ring| (tx_rings + 1 + ring, self.rx_ring(ring)));
        for (index, ring) in tx.chain(rx) {
            let offset = ring as i64 - at as i64;
            write(at + netmap_if::RING_OFS + 8 * usize::from(index), &offset.to_le_bytes());
        }
    }

    fn ring_words(&self, at: usize, id: u16, dir: u16, write: &mut impl FnMut(usize, &[u8])) {
        let slots = if dir == 0 { self.shape.tx_slots } else { self.shape.rx_slots };
        let buffers = if self.is_external() { 0 } else { (self.buffers - at) as i64 };
        write(at + netmap_ring::BUF_OFS, &buffers.to_le_bytes());
        write(at + netmap_ring::NUM_SLOTS, &slots.to_le_bytes());
        write(at + netmap_ring::BUF_SIZE, &self.shape.buffer_size.to_le_bytes());
        write(at + netmap_ring::RING_ID, &id.to_le_bytes());
        write(at + netmap_ring::DIR, &dir.to_le_bytes());
        let tail = if dir == 0 { slots - 1 } else { 0 };
        write(at + netmap_ring::TAIL, &tail.to_le_bytes());
    }
}
