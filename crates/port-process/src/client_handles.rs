//! What the client of a process port gets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringway_abi::Layout;
use ringway_memory::SharedMemory;

use crate::kept_fd::{Keeping, KeptFd};
use crate::positions::Positions;
use ringway_port::front_end::Process;

/// The parts of a process port that its client gets.
#[derive(Debug)]
pub struct ClientHandles {
    /// The sealed shared memory.
    pub memory: SharedMemory,
    /// Eventfd that the client writes to wake the switch.
    pub kick: Arc<KeptFd>,
    /// Eventfd that the switch writes to wake the client.
    pub call: Arc<KeptFd>,
    /// The layout of the shared memory.
    pub layout: Layout,
    /// What a successor needs beside these, if the port outlives the switch. The client does not get it.
    pub positions: Option<Positions>,
    /// What the keeper has of the port.
    pub keeping: Keeping,
}

/// What a predecessor left of a process port.
#[derive(Debug)]
pub struct LeftPort {
    /// The memory that the client has.
    pub memory: OwnedFd,
    /// See [`ClientHandles::kick`].
    pub kick: OwnedFd,
    /// See [`ClientHandles::call`].
    pub call: OwnedFd,
    /// See [`ClientHandles::positions`].
    pub positions: OwnedFd,
}

impl ClientHandles {
    /// Gives the closer copies of what the client is about to get. `owner`: the client, whose memory this becomes, too.
    ///
    /// # Errors
    /// The closer cannot have them: the client may not get its descriptors.
    pub(super) fn hold(&self, owner: Process) -> io::Result<()> {
        self.memory.mapping().set_owner(owner);
        self.kick.hold(owner)?;
        self.call.hold(owner)
    }

    /// The same for what a predecessor's client has.
    ///
    /// # Errors
    /// See [`hold`](Self::hold).
    pub(super) fn hold_left(&self, owner: Process) -> io::Result<()> {
        self.memory.mapping().set_owner(owner);
        self.kick.hold_left(owner, false)?;
        self.call.hold_left(owner, false)
    }

    /// Returns the descriptors of a granting reply, in the order of the protocol.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; ringway_abi::attach::REPLY_FDS] {
        [self.memory.file(), self.kick.as_fd(), self.call.as_fd()]
    }
}
