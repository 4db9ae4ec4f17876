//! The transmit ring (8254x manual, 3.3 and 3.4): a legacy descriptor for each plain frame; a context descriptor and data descriptors for
//! others.

use std::io;

use ringway_abi::e1000::transmit::IFCS;

use super::bring_up::RingAt;
use super::misuse::Misuse;
use super::offload::{HEADERS, Headers, Request};
use super::positions::Positions;
use super::ring::TransmitRing;
use crate::pci::{Dma, Piece};

/// Most bytes of a data descriptor of a frame in several. Linux's e1000 uses the same: more are trouble with some of the real NICs.
const PIECE: usize = 4096;
/// Bytes between the headers of two descriptors.
const HEADERS_STRIDE: usize = HEADERS.next_multiple_of(64);

/// The transmit ring, for buffers of its user.
#[derive(Debug)]
pub struct Transmit {
    /// How far it is.
    pub positions: Positions,
    ring: TransmitRing,
    bus: u64,
    /// Memory for headers of frames to be segmented, for each descriptor.
    headers: Option<Piece>,
    /// The number of descriptors of the frame that begins at a descriptor.
    spans: Box<[u32]>,
    /// The contexts that the device has at the end of the ring: for checksums, and for segmentation.
    contexts: [Option<[u64; 2]>; 2],
    /// Completed frames.
    sent: u64,
}

impl Transmit {
    /// Most descriptors of a frame of `len` bytes with an offload.
    pub fn most(len: usize) -> u32 {
        2 + len.div_ceil(PIECE) as u32
    }

    /// Bytes of device memory that a ring takes at most.
    pub fn memory(size: u32, offload: bool) -> usize {
        size as usize * (16 + if offload { HEADERS_STRIDE } else { 0 }) + PIECE
    }

    /// An empty ring of `size` descriptors, a power of two. `report`: whether the device marks completed descriptors.
    pub fn new(dma: &mut Dma, size: u32, report: bool, offload: bool) -> io::Result<Transmit> {
        let ring = dma.allocate(size as usize * 16, 4096)?;
        let headers = offload.then(|| dma.allocate(size as usize * HEADERS_STRIDE, 64)).transpose()?;
        Ok(Transmit {
            positions: Positions::new(size),
            ring: TransmitRing::new(ring.mapping(), ring.at(), size, report)?,
            bus: ring.bus(),
            headers,
            spans: vec![0; size as usize].into(),
            contexts: [None; 2],
            sent: 0,
        })
    }

    /// Returns where the ring is.
    pub fn place(&self) -> RingAt {
        RingAt { address: self.bus, size: self.positions.size() }
    }

    /// Queues the `len` bytes at the device's address `bus`. Returns false if there is no room.
    #[inline]
    pub fn push(&mut self, bus: u64, len: usize) -> bool {
        if self.positions.free() == 0 {
            return false;
        }
        self.put(0, bus, len as u64 | self.ring.last());
        self.queued(1);
        true
    }

    /// Queues the `len` bytes at the device's address `bus` with what they ask of the device. Returns false if there is no room.
    pub fn push_request(&mut self, bus: u64, len: usize, request: &Request) -> bool {
        let kind = usize::from(request.headers.is_some());
        let mut used = u32::from(self.contexts[kind] != Some(request.context));
        let head = request.headers.as_ref().map_or(0, |headers| headers.bytes().len());
        let pieces = len.saturating_sub(head).div_ceil(PIECE) as u32 + u32::from(head > 0);
        if used + pieces > self.positions.free() {
            return false;
        }
        if used == 1 {
            self.put(0, request.context[0], request.context[1]);
        }
        if let Some(headers) = &request.headers {
            let Some(address) = self.copy(headers) else { return false };
            let last = if len <= head { self.ring.last() } else { IFCS };
            self.put(used, address, head as u64 | request.data | last);
            used += 1;
        }
        for at in (head..len).step_by(PIECE) {
            let bytes = PIECE.min(len - at);
            let last = if at + bytes == len { self.ring.last() } else { IFCS };
            self.put(used, bus + at as u64, bytes as u64 | request.data | last);
            used += 1;
        }
        self.contexts[kind] = Some(request.context);
        self.queued(used);
        true
    }

    /// Copies headers to the place that the next descriptor has for them, as a frame's own may not change while it is sent again.
    fn copy(&self, headers: &Headers) -> Option<u64> {
        let (piece, bytes) = (self.headers.as_ref()?, headers.bytes());
        let at = self.index(self.positions.head()) * HEADERS_STRIDE;
        let is_copied = piece.view()?.sub(at, bytes.len())?.write(bytes);
        is_copied.then(|| piece.bus() + at as u64)
    }

    /// Fills the descriptor that is `ahead` after the next one.
    #[inline]
    fn put(&mut self, ahead: u32, first: u64, second: u64) {
        self.ring.put(self.positions.head().wrapping_add(ahead), first, second);
    }

    #[inline]
    fn queued(&mut self, descriptors: u32) {
        self.spans[self.index(self.positions.head())] = descriptors;
        self.positions.filled(descriptors);
    }

    /// Returns the descriptor at a position.
    #[inline]
    fn index(&self, position: u32) -> usize {
        (position & (self.positions.size() - 1)) as usize
    }

    /// Returns the number of frames that the device was seen to have completed.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Takes back the frames whose last descriptor the device has marked as completed.
    #[inline]
    pub fn take_reported(&mut self) {
        while self.positions.is_with_device() && self.ring.is_done(self.positions.done().wrapping_add(self.span() - 1))
        {
            self.take_frame();
        }
    }

    /// Takes back the frames before the device's head.
    ///
    /// # Errors
    /// The head is not between the first descriptor that the device has and the tail.
    #[inline]
    pub fn take_until(&mut self, head: u32) -> Result<(), Misuse> {
        let mut passed = self.positions.passed(head)?;
        while self.positions.is_with_device() && passed >= self.span() {
            passed -= self.span();
            self.take_frame();
        }
        Ok(())
    }

    /// Returns the descriptors of the first frame that the device has.
    #[inline]
    fn span(&self) -> u32 {
        self.spans[self.index(self.positions.done())]
    }

    #[inline]
    fn take_frame(&mut self) {
        self.positions.completed(self.span());
        self.sent += 1;
    }
}
