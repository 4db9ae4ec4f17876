//! A port in a region.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use ringway_abi::Layout;
use ringway_abi::netmap::Wish;
use ringway_port::front_end::ClientFd;
use ringway_port::port_io::PortIo;
use ringway_runtime::{Signal, Watch};
use ringway_switch::Bell;
use rustix::event::{EventfdFlags, eventfd};

use super::super::input::ProcessInput;
use super::super::output::ProcessOutput;
use super::super::ring::{self, Own, PortMemory};
use super::calls::{Calls, RegionBell};
use super::claims::Claims;
use super::error::RegionError;
use super::memory::Region;
use super::part::{Buffers, Part};

impl Region {
    /// Makes a port in this region.
    ///
    /// # Errors
    /// The region has no room for it, the wish is out of range, or the kernel has no descriptors left.
    pub fn open(self: &Arc<Self>, wish: &Wish, colour: u32) -> Result<(PortIo, Arc<RegionPort>), RegionError> {
        let shape = self.shape(wish)?;
        let part = Part::allocate(self, shape, colour, Buffers::Own)?;
        let (layout, mapping) = (part.layout, self.memory.mapping());
        let memory = PortMemory { own: Arc::clone(mapping), backing: Own };
        let mut input = ProcessInput::new(&memory, &layout, None, false)?;
        let mut output = ProcessOutput::new(&memory, &layout, false)?;
        input.keep(Arc::clone(&part), wish.header.into());
        output.keep(Arc::clone(&part), wish.header.into());
        let (port, bell, signal) = RegionPort::new(part, colour, wish.header)?;
        let sides = PortIo { input: Box::new(input), output: Box::new(output), bell, signal };
        Ok((sides, Arc::new(port)))
    }
}

/// A port in a region, as its registrations share it.
#[derive(Debug)]
pub struct RegionPort {
    part: Arc<Part>,
    pub(super) kick: Arc<ClientFd>,
    pub(super) calls: Arc<Calls>,
    pub(super) colour: u32,
    header: u8,
    pub(super) claims: Mutex<Claims>,
}

impl RegionPort {
    /// Makes what the registrations of a port share, the port's bell, and the signal of its clients.
    ///
    /// # Errors
    /// The kernel has no descriptors left, or the layout does not fit the region.
    pub(crate) fn new(part: Arc<Part>, colour: u32, header: u8) -> io::Result<(Self, Box<dyn Bell>, Signal)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (kick, calls) = (Arc::new(ClientFd::from(eventfd(0, flags)?)), Arc::new(Calls::default()));
        let shape = part.layout.shape;
        let pairs = 0..shape.tx_rings.max(shape.rx_rings);
        let pairs = pairs.map(|pair| ring::doorbell_of(part.region.mapping(), &part.layout, pair));
        let bell = RegionBell::new(pairs.collect::<io::Result<_>>()?, Arc::clone(&calls));
        let watch = Watch::new();
        watch.add(kick.clone())?;
        let signal = Signal::Kick(watch);
        let claims = Mutex::new(Claims::new(shape.tx_rings, shape.rx_rings));
        Ok((Self { part, kick, calls, colour, header, claims }, Box::new(bell), signal))
    }

    /// Wakes the port's poller, as a client does. The clients share the eventfd, so that the signal can last: after it lasted too
    /// often, the port's next call ends the port. Returns false if the kernel had no means for it: the caller kicks again later.
    pub(crate) fn kick(&self) -> bool {
        self.calls.is_blocked() || self.calls.signal(self.kick.as_fd())
    }

    /// Wakes all clients, whether they have asked for it or not: something has moved outside of a poller. Returns false if the kernel
    /// had no means for it: the caller calls again later.
    pub(crate) fn call_all(&self) -> bool {
        self.calls.call_all()
    }

    /// For tests: the kernel has no means for calls to the clients, or has them again.
    #[cfg(test)]
    pub(crate) fn fail_calls(&self, fails: bool) {
        self.calls.fail(fails);
    }

    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.part.region
    }

    /// Returns the layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.part.layout
    }

    /// Returns the bytes of the offload header before each frame.
    #[must_use]
    pub fn header(&self) -> u8 {
        self.header
    }

    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.part.region.memory.file()
    }
}

impl Drop for RegionPort {
    fn drop(&mut self) {
        self.part.begin_to_leave();
    }
}
