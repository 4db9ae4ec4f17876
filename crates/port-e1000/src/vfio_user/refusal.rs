//! Reasons for which a request is answered with an error.

use std::io;

use ringway_port::guest::RegionError;
use rustix::io::Errno;

use super::function::BadAccess;
use super::message;

/// Why a request is refused. The front end is told by errno and may continue. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A second VERSION.
    #[error("VERSION comes once, at the beginning")]
    Again,
    /// A message that is not supported.
    #[error("message {0} ({name}) is not understood", name = message::name(*.0))]
    Unsupported(u16),
    /// A feature of devices that can migrate.
    #[error("the device has none of the features of DEVICE_FEATURE: it cannot migrate")]
    NoFeature,
    /// An index of a region or interrupt that PCI functions do not have.
    #[error("{name} with index {index}: there is none")]
    NoIndex {
        /// Name of the message.
        name: &'static str,
        /// The index.
        index: u32,
    },
    /// `argsz` is too small for the shortest answer.
    #[error("{name} with room for {argsz} bytes of answer: {right} are needed")]
    Argsz {
        /// Name of the message.
        name: &'static str,
        /// The stated size in bytes.
        argsz: u32,
        /// The required size in bytes.
        right: u32,
    },
    /// An access outside a region, or to a region that messages cannot access.
    #[error("an access of {count} bytes at {offset:#x} of region {region}, which is not there")]
    Access {
        /// Index of the region.
        region: u32,
        /// Offset in the region.
        offset: u64,
        /// Length in bytes.
        count: u32,
    },
    /// An access that the function does not support: a mistake of the guest, not of the front end.
    #[error("the device has nothing that can be accessed so")]
    Function,
    /// DMA_MAP with flags other than readable and writable, or with none.
    #[error("DMA_MAP with flags {0:#x}: 1 (readable), 2 (writable) and 3 are right")]
    MapFlags(u32),
    /// An empty range, or one that wraps.
    #[error("memory of {size:#x} bytes at {address:#x}: no such range")]
    MapRange {
        /// First address.
        address: u64,
        /// Size in bytes.
        size: u64,
    },
    /// DMA_MAP of addresses that are mapped already.
    #[error("DMA_MAP at {0:#x}, where something is mapped already")]
    Overlap(u64),
    /// More mappings than were offered.
    #[error("more than {most} pieces of memory: max_dma_maps says how many there may be", most = super::limits::MOST_MAPS)]
    TooManyMaps,
    /// Memory that cannot be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A request for dirty pages, which the device does not track.
    #[error("DMA_UNMAP wants a bitmap of what was written: it is not noted")]
    NoBitmap,
    /// DMA_UNMAP with invalid flags.
    #[error("DMA_UNMAP with flags {0:#x}: 0, or 2 (all) with address and size 0 are right")]
    UnmapFlags(u32),
    /// DMA_UNMAP of a part of a mapping.
    #[error("DMA_UNMAP at {0:#x} would leave a part of what was mapped")]
    Bisects(u64),
    /// DMA_UNMAP where nothing is mapped.
    #[error("DMA_UNMAP at {0:#x}, where nothing is mapped")]
    NotMapped(u64),
    /// The guest's memory is not in a file, so it cannot be shared.
    #[error(
        "the guest's memory came without a file, so that the device cannot use it (QEMU: -object \
         memory-backend-memfd,id=mem,size=SIZE,share=on -machine ...,memory-backend=mem)"
    )]
    NotShared,
    /// SET_IRQS for interrupts that the device does not have, or while another kind is in use.
    #[error("SET_IRQS for interrupts {start} to {last} of kind {index}: the device has {has}, or uses another kind now", last = u64::from(*.start).saturating_add((*.count).into()))]
    NoIrq {
        /// Index of the kind.
        index: u32,
        /// The first interrupt.
        start: u32,
        /// Number of interrupts.
        count: u32,
        /// How many interrupts of this kind the device has.
        has: u32,
    },
    /// SET_IRQS without exactly one kind of data and one action.
    #[error("SET_IRQS with flags {0:#x}: one kind of data and one action are right")]
    IrqFlags(u32),
    /// An action that this kind of interrupt does not support.
    #[error("SET_IRQS with flags {flags:#x} is nothing that interrupts of kind {index} can do")]
    IrqAction {
        /// Index of the kind.
        index: u32,
        /// The flags of the request.
        flags: u32,
    },
    /// A descriptor that is not an eventfd.
    #[error("SET_IRQS comes with a descriptor that is not an eventfd")]
    NotEventfd,
    /// This process has no descriptors or memory left.
    #[error("out of resources: {0}")]
    System(#[from] io::Error),
}

impl From<BadAccess> for Refusal {
    fn from(_: BadAccess) -> Refusal {
        Refusal::Function
    }
}

impl Refusal {
    /// Returns the errno for the front end.
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

    /// Returns the reason's name in status and metrics. Returns `None` for requests by which a front end may probe for
    /// support, and for mistakes of the guest.
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
