//! A link within this process, for tests and examples. The link can also do to frames what a broken network does.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_lwep::link::{Interface, Link, Received};
use ringway_memory::{Buffer, Mapping};
use rustix::event::{EventfdFlags, eventfd};

/// A frame under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The frame.
    pub bytes: Vec<u8>,
    /// Its offload request.
    pub offload: Option<Offload>,
}

type Queue = Rc<RefCell<VecDeque<InFlight>>>;
/// Puts frames into the receiver's queue: what becomes of a frame on its way.
type Network = Box<dyn FnMut(InFlight, &mut VecDeque<InFlight>)>;

/// One end of a [`pair`].
pub struct MemoryLink {
    interface: Interface,
    buffers: Vec<Buffer>,
    tx: Queue,
    rx: Queue,
    network: Option<Network>,
    first: Option<InFlight>,
    capacity: usize,
    queued: u64,
    call: OwnedFd,
}

/// How the links of a [`pair`] are made.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// Most frames under way in each direction.
    pub capacity: usize,
    /// Buffers of each end.
    pub buffers: u32,
    /// Bytes of a buffer.
    pub buffer: u32,
    /// Frames may be handed over unsegmented.
    pub offload: bool,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { capacity: 1024, buffers: 1024, buffer: 2048, offload: false }
    }
}

/// Returns two connected links, with the addresses 02:00:00:00:00:01 and 02:00:00:00:00:02.
///
/// # Errors
/// The kernel gives no memory.
pub fn pair(options: &MemoryOptions) -> io::Result<(MemoryLink, MemoryLink)> {
    let (there, back) = (Queue::default(), Queue::default());
    let a = MemoryLink::new(1, options, &there, &back)?;
    Ok((a, MemoryLink::new(2, options, &back, &there)?))
}

impl MemoryLink {
    fn new(number: u8, options: &MemoryOptions, tx: &Queue, rx: &Queue) -> io::Result<Self> {
        let (bytes, count) = (options.buffer as usize, options.buffers);
        let mapping = Arc::new(Mapping::private(bytes * count as usize)?);
        // SAFETY: the mapping is this link's own, and the buffers do not overlap.
        let buffer = |index| unsafe { Buffer::new(&mapping, index, index as usize * bytes, options.buffer) };
        let interface = Interface {
            name: format!("memory{number}"),
            mac: [2, 0, 0, 0, 0, number],
            longest: if options.offload { bytes.min(1514) } else { bytes },
            segmented: if options.offload { bytes } else { 0 },
            checksums: options.offload,
            front: 0,
            buffer: bytes,
            places: 0,
            holds: options.capacity,
        };
        Ok(Self {
            interface,
            buffers: (0..count).filter_map(buffer).collect(),
            tx: Rc::clone(tx),
            rx: Rc::clone(rx),
            network: None,
            first: None,
            capacity: options.capacity,
            queued: 0,
            call: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Sets what becomes of frames sent from here: `network` gets each frame, and the queue of frames that the other end receives.
    pub fn set_network(&mut self, network: impl FnMut(InFlight, &mut VecDeque<InFlight>) + 'static) {
        self.network = Some(Box::new(network));
    }

    /// Puts a frame into the queue of frames that this end receives, as a third station would.
    pub fn inject(&self, bytes: &[u8]) {
        self.rx.borrow_mut().push_back(InFlight { bytes: bytes.to_vec(), offload: None });
    }
}

impl Link for MemoryLink {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    fn room(&mut self) -> usize {
        self.capacity.saturating_sub(self.tx.borrow().len())
    }

    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        let most = if offload.is_some() { self.interface.segmented } else { self.interface.longest };
        let Some(bytes) = buffer.get(..len).filter(|_| len <= most && self.capacity > self.tx.borrow().len()) else {
            return false;
        };
        let frame = InFlight { bytes: bytes.to_vec(), offload: offload.copied() };
        self.queued += 1;
        match &mut self.network {
            Some(network) => network(frame, &mut self.tx.borrow_mut()),
            None => self.tx.borrow_mut().push_back(frame),
        }
        true
    }

    fn flush(&mut self) {}

    fn sent(&mut self) -> u64 {
        self.queued
    }

    fn peek(&mut self) -> Option<Received<'_>> {
        if self.first.is_none() {
            self.first = self.rx.borrow_mut().pop_front();
        }
        self.first.as_ref().map(|frame| Received { bytes: &frame.bytes, offload: frame.offload })
    }

    fn release(&mut self) {
        self.first = None;
    }

    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        let bytes = self.first.take().map(|frame| frame.bytes).unwrap_or_default();
        let len = bytes.len().min(spare.len());
        spare[..len].copy_from_slice(&bytes[..len]);
        (0, len)
    }

    fn want(&mut self, room: bool) -> bool {
        self.first.is_some() || !self.rx.borrow().is_empty() || (room && self.room() > 0)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.call.as_fd()
    }

    fn awake(&mut self) {}

    fn wait(&mut self, _room: bool, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }
}
