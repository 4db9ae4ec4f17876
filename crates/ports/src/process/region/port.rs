//! A port in a region.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use ringway_abi::Layout;
use ringway_abi::netmap::Wish;
use ringway_engine::Signal;
use rustix::event::{EventfdFlags, eventfd};

use super::super::input::ProcessInput;
use super::super::output::ProcessOutput;
use super::super::ring;
use super::calls::{Calls, RegionBell};
use super::claims::Claims;
use super::error::RegionError;
use super::memory::Region;
use super::part::Part;
use crate::port_io::PortIo;

impl Region {
    /// Makes a port in this region.
    ///
    /// # Errors
    /// The region has no room for it, the wish is out of range, or the kernel has no descriptors left.
    pub fn open(self: &Arc<Self>, wish: &Wish, colour: u32) -> Result<(PortIo, Arc<RegionPort>), RegionError> {
        let shape = self.shape(wish)?;
        let part = Part::allocate(self, shape, colour)?;
        let (layout, mapping) = (part.layout, self.memory.mapping());
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = eventfd(0, flags).map_err(io::Error::from)?;
        let mut input = ProcessInput::new(Arc::clone(mapping), layout)?;
        let mut output = ProcessOutput::new(Arc::clone(mapping), layout)?;
        input.keep(Arc::clone(&part), wish.header.into());
        output.keep(Arc::clone(&part), wish.header.into());
        let calls = Arc::new(Calls::default());
        let pairs = 0..shape.tx_rings.max(shape.rx_rings);
        let pairs = pairs.map(|pair| ring::doorbell_of(mapping, &layout, pair)).collect::<io::Result<_>>()?;
        let bell = RegionBell::new(pairs, Arc::clone(&calls));
        let signal = Signal::Kick(kick.try_clone()?);
        let sides = PortIo { input: Box::new(input), output: Box::new(output), bell: Box::new(bell), signal };
        let claims = Mutex::new(Claims::new(shape.tx_rings, shape.rx_rings));
        Ok((sides, Arc::new(RegionPort { part, kick, calls, colour, header: wish.header, claims })))
    }
}

/// A port in a region, as its registrations share it.
#[derive(Debug)]
pub struct RegionPort {
    part: Arc<Part>,
    pub(super) kick: OwnedFd,
    pub(super) calls: Arc<Calls>,
    pub(super) colour: u32,
    header: u8,
    pub(super) claims: Mutex<Claims>,
}

impl RegionPort {
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
