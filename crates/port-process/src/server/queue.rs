//! How other threads reach the server's.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use parking_lot::Mutex;
use ringway_port::front_end::{ClientFd, Files};

use super::host::ClientId;

/// What other threads ask of the server.
pub(super) enum Command {
    End(ClientId, String),
    /// The memory of this client was mapped or refused.
    Mapped(ClientId),
    /// The registration of this client was made or refused.
    Registered(ClientId),
    /// The closer has received this message with a client's memory, with the files that came with it, if it could.
    Memory(ClientId, Vec<u8>, Option<Vec<ClientFd>>),
    /// The server listens here from now on: its path was removed.
    Listen {
        listener: OwnedFd,
        files: Files,
        path: PathBuf,
    },
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
