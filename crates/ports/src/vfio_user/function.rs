//! The interface of a PCI function to a connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_memory::Quota;

use crate::guest::GuestMemory;

/// Regions of a PCI function in VFIO's numbering: BARs 0 to 5, expansion ROM, configuration space, VGA.
pub const REGIONS: usize = 9;
/// The region that is the configuration space.
pub const CONFIG_REGION: usize = 7;

/// One region of a function; of size 0 if it has none.
#[derive(Debug, Default)]
pub struct RegionInfo {
    /// Bytes.
    pub size: u64,
    /// Whether it can be read and written by messages.
    pub access: bool,
    /// What of it the front end may map, in `memory`.
    pub areas: Vec<MapArea>,
    /// The memory behind the areas, from the region's first byte on.
    pub memory: Option<OwnedFd>,
}

/// A part of a region that the front end may map: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapArea {
    /// From the region's first byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// How many interrupts of each kind a function has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Irqs {
    /// 0 or 1.
    pub intx: u32,
    /// Messages.
    pub msi: u32,
    /// Entries of the MSI-X table.
    pub msi_x: u32,
}

/// Which interrupts the front end has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// None yet.
    #[default]
    None,
    /// The pin, which stays masked from its trigger until the front end unmasks it.
    Intx,
    /// Messages.
    Msi,
    /// Messages from a table.
    MsiX,
}

/// The guest's memory as the front end has mapped it for the device. Tables are immutable and replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Dma {
    /// What the device may read.
    pub readable: Arc<GuestMemory>,
    /// What it may write.
    pub writable: Arc<GuestMemory>,
}

/// An access that the function has no answer to: it is refused with EINVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAccess;

/// A PCI function. Everything here is called on the port's own thread alone; nothing may block or take long.
pub trait Function: Send + Sync {
    /// How much memory front ends may give, of one connection after the other.
    fn quota(&self) -> Arc<Quota>;

    /// Its regions, by VFIO's number. Asked once per connection.
    fn regions(&self) -> [RegionInfo; REGIONS];

    /// Its interrupts.
    fn irqs(&self) -> Irqs;

    /// Reads a region of those that have `access`. The range is inside it; size and alignment are as the guest had them.
    fn read(&self, region: usize, offset: u64, data: &mut [u8]) -> Result<(), BadAccess>;

    /// Writes a region.
    fn write(&self, region: usize, offset: u64, data: &[u8]) -> Result<(), BadAccess>;

    /// The memory has changed. When this returns, what was there before is in use by nobody.
    fn set_memory(&self, memory: Dma);

    /// The front end unmasked INTx, or said what else to write for an interrupt: if there is a cause still, it is to be triggered
    /// again.
    fn unmasked(&self);

    /// Whether registers are likely to be read soon: the guest has an interrupt at hand, or has changed a register and not read one
    /// since. Until they are, the port's own thread stays awake for them, if not for long.
    fn is_read_soon(&self) -> bool;

    /// The front end resets the function (VFIO_USER_DEVICE_RESET).
    fn reset(&self);

    /// A front end came, or went; then no interrupts or memory are left, and the function is as after power on.
    fn connected(&self, on: bool);
}
