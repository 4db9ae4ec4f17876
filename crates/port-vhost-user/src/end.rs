//! Reasons for which a front end is refused or loses its connection.

use std::io;

use ringway_memory::OverQuota;
use ringway_port::guest::{LogError, RegionError};

use super::config::CONFIG_BYTES;
use super::device::StartError;
use super::message::{self, ConfigRange, MOST_REGIONS, MessageError};
use crate::virtqueue::InflightError;

/// Why a session ends: a request that cannot be followed. The text is for users: what was wrong, and what would be
/// right.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    /// A malformed message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A message that belongs to a feature that was not offered.
    #[error("message {0} ({name}) is not understood: no feature that it belongs to was offered", name = message::name(*.0))]
    Unsupported(u32),
    /// A queue that the port does not have.
    #[error("{name} names queue {queue}: the port has {queues}, numbered from 0")]
    NoQueue {
        /// Name of the message.
        name: &'static str,
        /// Number of the queue.
        queue: u32,
        /// How many queues the port has.
        queues: u16,
    },
    /// A ring size out of range.
    #[error("queue {queue} is to have {size} descriptors: 1 to 32768 are right, without RING_PACKED a power of two")]
    RingSize {
        /// Number of the queue.
        queue: u16,
        /// Size in descriptors.
        size: u32,
    },
    /// Features that were not offered.
    #[error("features {0:#x} were not offered")]
    Features(u64),
    /// Features change while a queue runs.
    #[error("features change from {from:#x} to {to:#x} while a queue runs: only VHOST_F_LOG_ALL may")]
    FeaturesChange {
        /// Features in use.
        from: u64,
        /// Requested features.
        to: u64,
    },
    /// Protocol features that were not offered.
    #[error("protocol features {0:#x} were not offered")]
    ProtocolFeatures(u64),
    /// SET_VRING_ENABLE with a number other than 0 and 1.
    #[error("SET_VRING_ENABLE with {0}: 0 or 1 is right")]
    Enable(u32),
    /// A region that cannot be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The new memory table exceeds the port's memory limit, and the old regions are unmapped already.
    #[error("{0}")]
    MemoryLimit(OverQuota),
    /// Two regions share addresses.
    #[error("the memory region at guest address {0:#x} shares addresses with another")]
    Overlap(u64),
    /// More regions than were offered.
    #[error("more than {MOST_REGIONS} memory regions: GET_MAX_MEM_SLOTS says how many there may be")]
    TooManyRegions,
    /// A dirty log that cannot be mapped.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A dirty log without a file.
    #[error("SET_LOG_BASE without a file, or without LOG_SHMFD: dirty pages can only be noted in shared memory")]
    LogFile,
    /// A dirty log that does not cover the guest's memory.
    #[error("a dirty log of {size} bytes: {right} are needed to cover the guest's memory")]
    LogSize {
        /// Size in bytes.
        size: u64,
        /// The required size in bytes.
        right: u64,
    },
    /// In-flight memory that cannot be mapped.
    #[error(transparent)]
    Inflight(#[from] InflightError),
    /// A descriptor that is not an eventfd.
    #[error("{0} comes with a descriptor that is not an eventfd")]
    NotEventfd(&'static str),
    /// An MTU out of range.
    #[error("an MTU of {0}: 68 to the port's own is right")]
    Mtu(u64),
    /// SEND_RARP for a group address or for zero.
    #[error("SEND_RARP for an address that no station has")]
    Rarp,
    /// SET_CONFIG for bytes outside the configuration space, for none, or with unknown flags.
    #[error("SET_CONFIG of {} bytes at {} with flags {}: 1 to {CONFIG_BYTES} bytes inside {CONFIG_BYTES}, flags 0 or 1", .0.size, .0.offset, .0.flags)]
    Config(ConfigRange),
    /// A device status of more than one byte.
    #[error("a device status of {0:#x}: it is one byte")]
    Status(u64),
    /// A queue that cannot be started as it was described.
    #[error(transparent)]
    Start(#[from] StartError),
    /// This process has no descriptors or memory left.
    #[error("out of resources: {0}")]
    System(#[from] io::Error),
}

impl SessionEnd {
    /// The name of the reason in status and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Message(_) => "bad_message",
            Self::Unsupported(_) => "unsupported_message",
            Self::NoQueue { .. } | Self::Start(StartError::NoQueue(_)) => "no_such_queue",
            Self::RingSize { .. } | Self::Start(StartError::Size(..)) => "ring_size",
            Self::Features(_) | Self::FeaturesChange { .. } | Self::ProtocolFeatures(_) => "bad_features",
            Self::Enable(_) => "bad_enable",
            Self::MemoryLimit(_)
            | Self::Region(RegionError::Limit(_))
            | Self::Log(LogError::Limit(_))
            | Self::Inflight(InflightError::Limit(_)) => "memory_limit",
            Self::Region(_) | Self::Overlap(_) | Self::TooManyRegions => "bad_memory_table",
            Self::Log(_) | Self::LogFile | Self::LogSize { .. } => "bad_log",
            Self::Inflight(_) => "bad_inflight",
            Self::NotEventfd(_) => "not_an_eventfd",
            Self::Mtu(_) => "bad_mtu",
            Self::Config(_) => "bad_config",
            Self::Rarp => "bad_rarp",
            Self::Status(_) => "bad_status",
            Self::Start(_) => "ring_place",
            Self::System(_) => "out_of_resources",
        }
    }

    /// Returns true if the request had no effect, so that the front end can be told of the failure and go on.
    pub(super) fn changed_nothing(&self) -> bool {
        !matches!(self, Self::Message(_) | Self::Start(_) | Self::System(_) | Self::MemoryLimit(_))
    }
}
