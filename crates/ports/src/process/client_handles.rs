//! What the client of a process port gets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_abi::Layout;
use ringway_memory::SharedMemory;

/// The parts of a process port that its client gets.
#[derive(Debug)]
pub struct ClientHandles {
    /// The sealed shared memory.
    pub memory: SharedMemory,
    /// Eventfd that the client writes to wake the switch.
    pub kick: OwnedFd,
    /// Eventfd that the switch writes to wake the client.
    pub call: OwnedFd,
    /// The layout of the shared memory.
    pub layout: Layout,
}

impl ClientHandles {
    /// Returns the descriptors of a granting reply, in the order of the protocol.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; ringway_abi::attach::REPLY_FDS] {
        [self.memory.file(), self.kick.as_fd(), self.call.as_fd()]
    }
}
