//! Reasons for which a request is answered with an error.

use std::io;

use rustix::io::Errno;

use super::BadAccess;
use super::message;
use crate::guest::RegionError;

/// What a front end asked for that cannot be had. It is told by errno, and may go on. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// VERSION once more.
    #[error("VERSION comes once, at the beginning")]
    Again,
    /// A message that belongs to what was never said to be understood.
    #[error("message {0} ({name}) is not understood", name = message::name(*.0))]
    Unsupported(u16),
    /// Features of devices that can migrate.
    #[error("the device has none of the features of DEVICE_FEATURE: it cannot migrate")]
    NoFeature,
    /// A region or an interrupt that no PCI function has.
    #[error("{name} with index {index}: there is none")]
    NoIndex {
        /// The message.
        name: &'static str,
        /// What it names.
        index: u32,
    },
    /// No room for even the shortest answer.
    #[error("{name} with room for {argsz} bytes of answer: {right} are needed")]
    Argsz {
        /// The message.
        name: &'static str,
        /// What it says.
        argsz: u32,
        /// What would do.
        right: u32,
    },
    /// Not in the region, or of a region that cannot be read and written.
    #[error("an access of {count} bytes at {offset:#x} of region {region}, which is not there")]
    Access {
        /// The region.
        region: u32,
        /// Where.
        offset: u64,
        /// Bytes.
        count: u32,
    },
    /// The function has no answer: the guest's mistake, not the front end's.
    #[error("the device has nothing that can be accessed so")]
    Function,
    /// Memory neither to be read nor written, or something else.
    #[error("DMA_MAP with flags {0:#x}: 1 (readable), 2 (writable) and 3 are right")]
    MapFlags(u32),
    /// Nothing, or beyond the end of the address space.
    #[error("memory of {size:#x} bytes at {address:#x}: no such range")]
    MapRange {
        /// Where.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Two pieces in one place.
    #[error("DMA_MAP at {0:#x}, where something is mapped already")]
    Overlap(u64),
    /// More pieces than were offered.
    #[error("more than {most} pieces of memory: max_dma_maps says how many there may be", most = super::dma::MOST_MAPS)]
    TooManyMaps,
    /// A piece that cannot be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// What was written is not noted.
    #[error("DMA_UNMAP wants a bitmap of what was written: it is not noted")]
    NoBitmap,
    /// Something else than all.
    #[error("DMA_UNMAP with flags {0:#x}: 0, or 2 (all) with address and size 0 are right")]
    UnmapFlags(u32),
    /// A part of a piece.
    #[error("DMA_UNMAP at {0:#x} would leave a part of what was mapped")]
    Bisects(u64),
    /// Nothing there.
    #[error("DMA_UNMAP at {0:#x}, where nothing is mapped")]
    NotMapped(u64),
    /// The guest's memory cannot be shared.
    #[error(
        "the guest's memory came without a file, so that the device cannot use it (QEMU: -object \
         memory-backend-memfd,id=mem,size=SIZE,share=on -machine ...,memory-backend=mem)"
    )]
    NotShared,
    /// Interrupts that the device has not, or that another kind is in use.
    #[error("SET_IRQS for interrupts {start} to {last} of kind {index}: the device has {has}, or uses another kind now", last = u64::from(*.start).saturating_add((*.count).into()))]
    NoIrq {
        /// The kind.
        index: u32,
        /// The first.
        start: u32,
        /// How many.
        count: u32,
        /// How many there are.
        has: u32,
    },
    /// Flags that say nothing, or two things.
    #[error("SET_IRQS with flags {0:#x}: one kind of data and one action are right")]
    IrqFlags(u32),
    /// What cannot be done with this kind of interrupt.
    #[error("SET_IRQS with flags {flags:#x} is nothing that interrupts of kind {index} can do")]
    IrqAction {
        /// The kind.
        index: u32,
        /// What was to be done.
        flags: u32,
    },
    /// Something else where an eventfd is right.
    #[error("SET_IRQS comes with a descriptor that is not an eventfd")]
    NotEventfd,
    /// We have no descriptors or memory left.
    #[error("out of resources: {0}")]
    System(#[from] io::Error),
}

impl From<BadAccess> for Refusal {
    fn from(_: BadAccess) -> Refusal {
        Refusal::Function
    }
}

impl Refusal {
    /// What the front end is told.
    #[must_use]
    pub fn errno(&self) -> u32 {
        let errno = match self {
            Self::Unsupported(_) | Self::NoBitmap => Errno::OPNOTSUPP,
            Self::NoFeature | Self::IrqAction { .. } => Errno::NOTTY,
            Self::Overlap(_) => Errno::EXIST,
            Self::Region(RegionError::Limit(_)) => Errno::NOMEM,
            Self::TooManyMaps => Errno::NOSPC,
            Self::NotMapped(_) => Errno::NOENT,
            Self::System(error) => return error.raw_os_error().map_or(5, i32::unsigned_abs),
            _ => Errno::INVAL,
        };
        errno.raw_os_error().unsigned_abs()
    }

    /// The reason's name in status and metrics; nothing for what front ends may try, and for what guests do.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unsupported(_) | Self::NoIndex { .. } | Self::NoFeature | Self::NoBitmap | Self::Function => {
                return None;
            }
            Self::Again => "out_of_order",
            Self::Argsz { .. } => "bad_query",
            Self::Access { .. } => "bad_access",
            Self::Region(RegionError::Limit(_)) => "memory_limit",
            Self::MapFlags(_) | Self::MapRange { .. } | Self::Overlap(_) | Self::TooManyMaps | Self::Region(_) => {
                "bad_memory_map"
            }
            Self::UnmapFlags(_) | Self::Bisects(_) | Self::NotMapped(_) => "bad_memory_unmap",
            Self::NotShared => "memory_not_shared",
            Self::NoIrq { .. } | Self::IrqFlags(_) | Self::IrqAction { .. } => "bad_interrupts",
            Self::NotEventfd => "not_an_eventfd",
            Self::System(_) => "out_of_resources",
        })
    }
}
