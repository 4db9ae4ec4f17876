//! Mistakes of a driver in a ring's structure.

use ringway_port::guest::LogFault;

/// A violation of the virtio specification in a ring. The text is for users. The device cannot continue with the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// The available index is ahead of the device by more than the size of the ring.
    #[error("the available index jumped by {ahead}, the ring has {size} descriptors")]
    IndexJump {
        /// How far the index is ahead.
        ahead: u16,
        /// Size of the ring in descriptors.
        size: u16,
    },
    /// A chain begins with a descriptor that does not exist.
    #[error("a chain begins with descriptor {head} of a ring of {size}")]
    HeadOutOfRange {
        /// Index of the descriptor.
        head: u16,
        /// Size of the ring in descriptors.
        size: u16,
    },
    /// A chain continues with a descriptor that does not exist.
    #[error("a chain goes on with descriptor {next} of a table of {size}")]
    NextOutOfRange {
        /// Index of the descriptor.
        next: u16,
        /// Size of the table in descriptors.
        size: u32,
    },
    /// A chain has too many descriptors: it probably loops.
    #[error("a chain of more than {0} descriptors")]
    Endless(u32),
    /// A buffer or an indirect table is not in guest memory.
    #[error("a descriptor with {len} bytes at {address:#x}: not in the guest's memory")]
    BadAddress {
        /// Guest physical address.
        address: u64,
        /// Length in bytes.
        len: u32,
    },
    /// A transmit chain has a device-writable descriptor.
    #[error("a transmit chain with a device-writable descriptor")]
    WritableInTransmit,
    /// A receive chain has a descriptor that is not device-writable.
    #[error("a receive chain with a descriptor that is not device-writable")]
    ReadableInReceive,
    /// The size of an indirect table is 0 or not a multiple of 16 bytes.
    #[error("an indirect table of {0} bytes")]
    IndirectSize(u32),
    /// An indirect table refers to another indirect table.
    #[error("an indirect descriptor within an indirect table")]
    IndirectNested,
    /// An indirect descriptor, though VIRTIO_F_INDIRECT_DESC was not negotiated.
    #[error("an indirect descriptor, which was not negotiated")]
    IndirectRefused,
    /// A page of guest memory was lost.
    #[error("guest memory was truncated or its pages cannot be had")]
    MemoryLost,
    /// A written page has no bit in the dirty log.
    #[error("the dirty log has no bit for guest address {0:#x}")]
    LogTooSmall(u64),
    /// The write that signals the call eventfd took too long.
    #[error("signalling the call eventfd took too long")]
    CallBlocked,
}

impl From<LogFault> for RingFault {
    fn from(fault: LogFault) -> RingFault {
        match fault {
            LogFault::TooSmall(address) => RingFault::LogTooSmall(address),
            LogFault::MemoryLost => RingFault::MemoryLost,
        }
    }
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
