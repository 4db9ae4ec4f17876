//! What the server's thread has.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_keeper::Link;
use ringway_port::front_end::Files;
use ringway_runtime::PanicCounter;

use super::super::external::ExternalFiles;
use super::connection::Connection;
use super::host::Host;
use super::limits::TimeLimits;
use super::queue::{Command, Queue};

pub(super) const LISTENER: u64 = 0;
pub(super) const COMMANDS: u64 = 1;
pub(super) const FIRST_CLIENT: u64 = 2;

/// The server, as its thread has it.
pub(super) struct Server {
    pub(super) host: Box<dyn Host>,
    pub(super) listener: OwnedFd,
    /// Sockets whose path was removed.
    pub(super) earlier_listeners: Vec<OwnedFd>,
    /// Whether clients can send files.
    pub(super) files: Files,
    pub(super) epoll: OwnedFd,
    pub(super) queue: Arc<Queue>,
    /// Holds what outlives the switch.
    pub(super) keeper: Link,
    pub(super) clients: HashMap<u64, Connection>,
    /// The memories that clients have brought.
    pub(super) external: ExternalFiles,
    pub(super) next: u64,
    pub(super) asking: usize,
    pub(super) limits: TimeLimits,
    /// A spare descriptor for [`Server::refuse_without_descriptor`].
    pub(super) spare_fd: Option<OwnedFd>,
    /// Commands that are still to be executed.
    pub(super) pending: VecDeque<Command>,
    /// The client that is being served. If the thread panics, this client is disconnected.
    pub(super) at: Option<u64>,
    /// True while the host is being called. A panic in the host may leave state that the daemon shares with other
    /// threads half changed.
    pub(super) at_host: bool,
    /// Counts panics that no client caused.
    pub(super) strikes: PanicCounter,
}
