//! How a client announces frames.

use crate::watch::Watch;

/// How a client announces frames.
#[derive(Debug)]
pub enum Signal {
    /// In memory, which the poller reads while it is awake, and by these eventfds if the poller asked for a kick.
    Kick(Watch),
    /// In memory, and by the readiness of these descriptors. A wake-up by that is no kick.
    Watched(Watch),
    /// By the readiness of these descriptors of a device only.
    Device(Watch),
}

impl Signal {
    /// The descriptors that a sleeping poller waits for.
    pub fn watch(&self) -> &Watch {
        match self {
            Self::Kick(watch) | Self::Watched(watch) | Self::Device(watch) => watch,
        }
    }

    /// Returns true if frames are seen in memory, without a call of the kernel.
    pub fn in_memory(&self) -> bool {
        !matches!(self, Self::Device(_))
    }
}
