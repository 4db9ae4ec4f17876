//! The interface of a PCI function to a connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_memory::Quota;

use ringway_port::guest::GuestMemory;

use crate::kept::State;

/// Number of regions of a PCI function in VFIO's numbering: BARs 0 to 5, expansion ROM, configuration space, VGA.
pub const REGIONS: usize = 9;
/// Index of the configuration space.
pub const CONFIG_REGION: usize = 7;

/// One region of a function. A region that the function does not have has size 0.
#[derive(Debug, Default)]
pub struct RegionInfo {
    /// Size in bytes.
    pub size: u64,
    /// True if messages may read and write the region.
    pub access: bool,
    /// The areas of `memory` that the front end may map.
    pub areas: Vec<MapArea>,
    /// The memory behind the areas. Its first byte is the first byte of the region.
    pub memory: Option<OwnedFd>,
}

/// A part of a region that the front end may map: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapArea {
    /// Offset in the region.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// How many interrupts of each kind a function has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Irqs {
    /// Interrupt pins: 0 or 1.
    pub intx: u32,
    /// MSI messages.
    pub msi: u32,
    /// Entries of the MSI-X table.
    pub msi_x: u32,
}

/// The kind of interrupts that the front end has enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// None yet.
    #[default]
    None,
    /// INTx: the pin stays masked from its trigger until the front end unmasks it.
    Intx,
    /// MSI.
    Msi,
    /// MSI-X.
    MsiX,
}

/// The guest's memory as the front end has mapped it for the device. Tables are immutable and replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Dma {
    /// Memory that the device may read.
    pub readable: Arc<GuestMemory>,
    /// Memory that the device may write.
    pub writable: Arc<GuestMemory>,
}

/// An access that the function does not support. The front end gets EINVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAccess;

/// A PCI function. All methods are called on the port's own thread and must neither block nor take long.
pub trait Function: Send + Sync {
    /// Returns limits and use of the memory that front ends may share, over all connections.
    fn quota(&self) -> Arc<Quota>;

    /// Returns the regions, by VFIO's number. Called once for each connection.
    fn regions(&self) -> [RegionInfo; REGIONS];

    /// Returns how many interrupts the function has.
    fn irqs(&self) -> Irqs;

    /// Reads from a region whose `access` is true. The range is inside the region. Size and alignment are those that
    /// the guest chose.
    fn read(&self, region: usize, offset: u64, data: &mut [u8]) -> Result<(), BadAccess>;

    /// Writes to a region whose `access` is true. The range is inside the region.
    fn write(&self, region: usize, offset: u64, data: &[u8]) -> Result<(), BadAccess>;

    /// Replaces the memory tables. When this returns, no thread uses the old tables any more.
    fn set_memory(&self, memory: Dma);

    /// The front end unmasked INTx or replaced an interrupt's eventfd. If an interrupt cause is still pending, the
    /// function triggers the interrupt again.
    fn unmasked(&self);

    /// Returns true if the guest will probably read registers soon: it has an interrupt to handle, or it has written a
    /// register and not read one since. Until the guest reads, the port's own thread stays awake, for a short time.
    fn expects_register_read(&self) -> bool;

    /// Resets the function (VFIO_USER_DEVICE_RESET).
    fn reset(&self);

    /// A front end connected. The function is as after power-on, and gives the front end nothing that another one has had.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left.
    fn connected(&self) -> io::Result<()>;

    /// From now on, the function notes in `state` what must not wait for [`Function::save`].
    fn note_in(&self, state: &Arc<State>) {
        let _ = state;
    }

    /// Returns memory of the function that a successor of this process needs.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    fn memory_file(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Returns true if [`Function::save`] would write something else than the last time.
    fn is_changed(&self) -> bool {
        true
    }

    /// Appends what a successor of this process needs to go on: settings, registers, configuration space.
    fn save(&self, to: &mut Vec<u8>) {
        let _ = to;
    }

    /// A successor of the process that has saved this, with its [`Function::memory_file`]: the front end is connected, and the function is as it was, but touches no memory and
    /// raises no interrupt before [`Function::resume`]. Returns false, and is as after power-on, if the bytes are not what this function would save, or have
    /// other settings.
    fn restore(&self, from: &[u8], memory: Option<OwnedFd>) -> bool {
        let _ = (from, memory);
        false
    }

    /// After [`Function::restore`], once memory and interrupts are there: goes on.
    fn resume(&self) {}

    /// The front end disconnected. No interrupts and no memory are left, and the function is as after power-on.
    fn disconnected(&self);
}
