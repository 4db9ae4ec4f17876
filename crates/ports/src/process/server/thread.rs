//! What the server's thread has, and how other threads reach it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use ringway_engine::PanicCounter;

use super::super::external::ExternalFiles;
use super::connection::Connection;
use super::host::{ClientId, Host};
use super::limits::TimeLimits;
use crate::front_end::{ClientFd, Files};

pub(super) const LISTENER: u64 = 0;
pub(super) const COMMANDS: u64 = 1;
pub(super) const FIRST_CLIENT: u64 = 2;

/// What other threads ask of the server.
pub(super) enum Command {
    End(ClientId, String),
    /// The memory of this client was mapped or refused.
    Mapped(ClientId),
    /// The registration of this client was made or refused.
    Registered(ClientId),
    /// The closer has received this message with a client's memory, with the files that came with it, if it could.
    Memory(ClientId, Vec<u8>, Option<Vec<ClientFd>>),
    Stop,
}

/// Commands for the server.
pub(super) struct Queue {
    pub(super) commands: Mutex<Vec<Command>>,
    pub(super) wake: OwnedFd,
}

impl Queue {
    pub(super) fn send(&self, command: Command) {
        self.commands.lock().push(command);
        // Only this process has the descriptor; a full counter is as good as a write.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The server, as its thread has it.
pub(super) struct Server {
    pub(super) host: Box<dyn Host>,
    pub(super) listener: OwnedFd,
    /// Whether clients can send files.
    pub(super) files: Files,
    pub(super) epoll: OwnedFd,
    pub(super) queue: Arc<Queue>,
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
