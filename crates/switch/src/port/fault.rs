//! Why a port must end.

use crate::defect::Defect;

/// Why a port must end: the client broke the rules, or Ringway itself failed. The display text is for the client and
/// for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFault {
    /// `head` is not a slot of the transmit ring.
    TxHeadOutOfRange(u32),
    /// `head` of the receive ring is not between its last value and `tail`.
    RxHeadOutOfRange(u32),
    /// A frame spans more slots than are allowed and has no end.
    EndlessFrame,
    /// The memory file was truncated, or its pages cannot be had.
    MemoryLost,
    /// Too many pages of the client's memory file did not exist when they were needed.
    MemoryHoles,
    /// The device behind the port failed or was removed.
    DeviceLost,
    /// The device behind the port has another address or other queues than when the port was opened.
    DeviceChanged,
    /// The kernel drops all frames of the device instead of giving them to the port.
    DeviceStalled,
    /// Waking the client takes too long.
    CallBlocked,
    /// Ringway panicked while it served the port. This is not the client's fault.
    InternalError(Defect),
}

impl PortFault {
    /// The name in `status --json` and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TxHeadOutOfRange(_) => "tx_head_out_of_range",
            Self::RxHeadOutOfRange(_) => "rx_head_out_of_range",
            Self::EndlessFrame => "endless_frame",
            Self::MemoryLost => "memory_lost",
            Self::MemoryHoles => "memory_holes",
            Self::DeviceLost => "device_lost",
            Self::DeviceChanged => "device_changed",
            Self::DeviceStalled => "device_stalled",
            Self::CallBlocked => "call_blocked",
            Self::InternalError(_) => "internal_error",
        }
    }
}

impl std::fmt::Display for PortFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TxHeadOutOfRange(head) => write!(f, "transmit ring: head {head} is not a slot of the ring"),
            Self::RxHeadOutOfRange(head) => {
                write!(f, "receive ring: head {head} is not between its last value and tail")
            }
            Self::EndlessFrame => write!(f, "transmit ring: a frame spans 64 slots and still has NS_MOREFRAG set"),
            Self::MemoryLost => write!(f, "the shared memory was truncated or its pages cannot be had"),
            Self::MemoryHoles => write!(f, "too many pages of the client's memory did not exist when they were needed"),
            Self::DeviceLost => write!(f, "the device behind the port failed or was removed"),
            Self::DeviceChanged => write!(f, "the device behind the port has another address or other queues"),
            Self::DeviceStalled => {
                write!(f, "the kernel gave the port no more frames of its device, or took none of the port's")
            }
            Self::CallBlocked => write!(f, "signalling the call eventfd took too long"),
            Self::InternalError(defect) => defect.fmt(f),
        }
    }
}
