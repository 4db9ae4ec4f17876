//! The message that brings a client's memory, for the fuzzer.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_port::front_end::ClientFd;

use super::ExternalMemory;
use super::external::{ExternalFiles, Found};

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
        let copy = |file: &OwnedFd| ClientFd::from(file.try_clone().expect("a descriptor"));
        let mut files: Vec<ClientFd> = files.iter().map(copy).collect();
        let memory = self.0.find(message, &mut files, bytes, process).and_then(|found| match found {
            Found::Mapped(memory) => Ok(memory),
            Found::Unmapped(unmapped) => unmapped.map().and_then(|memory| self.0.add(memory)),
        });
        memory.map_err(|error| error.to_string())
    }
}
