//! Mistakes of a driver in a ring's structure.

/// A ring is not as the specification demands. The text is for users; the device cannot go on with the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// More chains than the ring has descriptors.
    #[error("the available index jumped by {ahead}, the ring has {size} descriptors")]
    IndexJump {
        /// By how much.
        ahead: u16,
        /// What the ring has.
        size: u16,
    },
    /// A chain begins with a descriptor that is not there.
    #[error("a chain begins with descriptor {head} of a ring of {size}")]
    HeadOutOfRange {
        /// Its number.
        head: u16,
        /// What the ring has.
        size: u16,
    },
    /// A chain goes on with a descriptor that is not there.
    #[error("a chain goes on with descriptor {next} of a table of {size}")]
    NextOutOfRange {
        /// Its number.
        next: u16,
        /// What the table has.
        size: u32,
    },
    /// A chain has no end.
    #[error("a chain of more than {0} descriptors")]
    Endless(u32),
    /// Memory that is not the guest's.
    #[error("a descriptor with {len} bytes at {address:#x}: not in the guest's memory")]
    BadAddress {
        /// Guest physical address.
        address: u64,
        /// Bytes.
        len: u32,
    },
    /// A transmit chain with a descriptor for the device to write.
    #[error("a transmit chain with a device-writable descriptor")]
    WritableInTransmit,
    /// A receive chain with a descriptor that the device may not write.
    #[error("a receive chain with a descriptor that is not device-writable")]
    ReadableInReceive,
    /// An indirect table of a size that is none.
    #[error("an indirect table of {0} bytes")]
    IndirectSize(u32),
    /// An indirect table in an indirect table.
    #[error("an indirect descriptor within an indirect table")]
    IndirectNested,
    /// An indirect table without VIRTIO_F_INDIRECT_DESC.
    #[error("an indirect descriptor, which was not negotiated")]
    IndirectRefused,
    /// A page cannot be had.
    #[error("guest memory was truncated or its pages cannot be had")]
    MemoryLost,
    /// A written page has no bit in the dirty log.
    #[error("the dirty log has no bit for guest address {0:#x}")]
    LogTooSmall(u64),
    /// Waking the driver takes too long.
    #[error("signalling the call eventfd took too long")]
    CallBlocked,
}

impl RingFault {
    /// The name in `status --json` and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IndexJump { .. } => "ring_index_jump",
            Self::HeadOutOfRange { .. } => "ring_head_out_of_range",
            Self::NextOutOfRange { .. } => "ring_next_out_of_range",
            Self::Endless(_) => "ring_endless_chain",
            Self::BadAddress { .. } => "ring_bad_address",
            Self::WritableInTransmit => "ring_writable_in_transmit",
            Self::ReadableInReceive => "ring_readable_in_receive",
            Self::IndirectSize(_) => "ring_indirect_size",
            Self::IndirectNested => "ring_indirect_nested",
            Self::IndirectRefused => "ring_indirect_refused",
            Self::MemoryLost => "memory_lost",
            Self::LogTooSmall(_) => "log_too_small",
            Self::CallBlocked => "call_blocked",
        }
    }
}
