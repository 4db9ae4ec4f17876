//! Memory that clients bring is mapped on threads that do nothing else: how long that lasts is the client's choice (`docs/decisions/waits.md`).

use std::sync::Arc;

use parking_lot::Mutex;
use ringway_port::front_end::{Process, register_in_steps, return_in_background};

use super::super::external::{ExternalError, ExternalMemory, Unmapped};
use super::host::ClientId;
use super::queue::{Command, Queue};

/// What became of a client's memory.
type Outcome = Result<Arc<ExternalMemory>, ExternalError>;

/// A memory that is being mapped.
pub(super) struct Mapping {
    outcome: Arc<Mutex<Option<Outcome>>>,
    process: Process,
}

impl Mapping {
    /// Begins. The server is told when it has ended ([`Command::Mapped`]).
    pub(super) fn begin(unmapped: Unmapped, process: Process, client: ClientId, server: Arc<Queue>) -> Self {
        let outcome = Arc::new(Mutex::new(None));
        let (there, mut unmapped) = (Arc::clone(&outcome), Some(unmapped));
        register_in_steps([process; 2], move || {
            let mapped = unmapped.take()?.map();
            *there.lock() = Some(mapped);
            server.send(Command::Mapped(client));
            None
        });
        Self { outcome, process }
    }

    /// Takes the outcome, once there is one.
    pub(super) fn take(&self) -> Option<Outcome> {
        self.outcome.lock().take()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(Ok(memory)) = self.take() {
            // The client has gone. To unmap its memory can last as long as to map it.
            return_in_background([self.process; 2], move || drop(memory));
        }
    }
}
