//! The message that brings a client's memory, for the fuzzer.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::ExternalMemory;
use super::external::ExternalFiles;

/// The memories of a server's clients.
#[derive(Debug, Default)]
pub struct Memories(ExternalFiles);

impl Memories {
    /// Takes a message and the files that came with it, of a process that has asked for a memory of `bytes` bytes.
    ///
    /// # Errors
    /// The text for the client.
    pub fn take(
        &mut self,
        message: &[u8],
        files: &[OwnedFd],
        bytes: u64,
        process: Option<NonZeroU32>,
    ) -> Result<Arc<ExternalMemory>, String> {
        self.0.map(message, files, bytes, process).map_err(|error| error.to_string())
    }
}
