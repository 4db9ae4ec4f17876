//! Mistakes of a driver in a descriptor ring.

/// Why a ring cannot be used. The text is for users. The ring stops until it is turned on again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// An invalid length.
    #[error("a ring of {0} descriptors: it takes a multiple of 8 from 8 to 65,528")]
    BadLength(u32),
    /// The ring is not in guest memory.
    #[error(
        "a ring of {bytes} bytes at {base:#x}: not aligned to 16 bytes, or not in one region of the guest's memory"
    )]
    BadBase {
        /// Guest physical address.
        base: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// The head register is outside the ring.
    #[error("the head register says {head}, the ring has {count} descriptors")]
    HeadOutOfRange {
        /// Value of the head register.
        head: u32,
        /// Size of the ring in descriptors.
        count: u32,
    },
    /// The tail register is outside the ring.
    #[error("the tail register says {tail}, the ring has {count} descriptors")]
    TailOutOfRange {
        /// Value of the tail register.
        tail: u32,
        /// Size of the ring in descriptors.
        count: u32,
    },
    /// A frame has too many descriptors.
    #[error("a frame of more than {0} descriptors")]
    Endless(u32),
    /// A buffer is not in guest memory.
    #[error("a descriptor with {len} bytes at {address:#x}: not in the guest's memory")]
    BadAddress {
        /// Guest physical address.
        address: u64,
        /// Length in bytes.
        len: u32,
    },
    /// The communication status block is not in guest memory.
    #[error("a communication status block at {0:#x}: not aligned, or not in one region of the guest's memory")]
    BadBlock(u64),
    /// The communication status block and a ring overlap.
    #[error("the communication status block at {block:#x} and the ring at {base:#x} overlap")]
    BlockOverlaps {
        /// Guest physical address of the block.
        block: u64,
        /// Guest physical address of the ring.
        base: u64,
    },
    /// A page of guest memory was lost.
    #[error("guest memory was truncated or its pages cannot be had")]
    MemoryLost,
}

impl RingFault {
    /// The name in `status --json` and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadLength(_) => "ring_bad_length",
            Self::BadBase { .. } => "ring_bad_base",
            Self::HeadOutOfRange { .. } => "ring_head_out_of_range",
            Self::TailOutOfRange { .. } => "ring_tail_out_of_range",
            Self::Endless(_) => "ring_endless_frame",
            Self::BadAddress { .. } => "ring_bad_address",
            Self::BadBlock(_) => "csb_bad_address",
            Self::BlockOverlaps { .. } => "csb_overlaps_ring",
            Self::MemoryLost => "memory_lost",
        }
    }
}
