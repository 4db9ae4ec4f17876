//! A descriptor that a client can have, too.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;

use super::keeper::{self, Copy};
use super::message::{MOST_FILES, Taking};
use crate::front_end::closing::Process;

/// A descriptor that a client can have, too. Dropping it never waits for a client, from the moment on that the closer has a copy of
/// it. It must not be duplicated: share it by `Arc`.
#[derive(Debug)]
pub struct ClientFd {
    // Dropped in this order: the last close is the closer's.
    file: OwnedFd,
    copy: OnceLock<Copy>,
}

impl ClientFd {
    /// Gives the closer a copy, unless it has one. `owner`: the client whose closes it counts among.
    ///
    /// # Errors
    /// The closer cannot have it now: no client may get this descriptor.
    pub fn hold(&self, owner: Process) -> io::Result<()> {
        if self.copy.get().is_none() {
            let copy = keeper::hold(self.file.as_fd(), owner, false)?;
            // Another thread may have been faster. Its copy is as good.
            let _ = self.copy.set(copy);
        }
        if self.is_held() { Ok(()) } else { Err(Errno::MFILE.into()) }
    }

    /// The same for a descriptor that a predecessor left with the keeper, mostly without waiting for the closer: until it has answered, the message to
    /// it, and the keeper's copy, keep the file open. `outlives`: see [`outlives`](Self::outlives).
    ///
    /// # Errors
    /// See [`hold`](Self::hold).
    pub fn hold_left(&self, owner: Process, outlives: bool) -> io::Result<()> {
        Self::hold_as_left(&[self], owner, outlives)
    }

    /// The same for several.
    ///
    /// # Errors
    /// See [`hold`](Self::hold).
    pub fn hold_all_left(files: &[&ClientFd], owner: Process) -> io::Result<()> {
        files.chunks(MOST_FILES).try_for_each(|files| Self::hold_as_left(files, owner, false))
    }

    fn hold_as_left(files: &[&ClientFd], owner: Process, outlives: bool) -> io::Result<()> {
        let files: Vec<_> = files.iter().filter(|file| file.copy.get().is_none()).collect();
        let own: Vec<_> = files.iter().map(|file| file.file.as_fd()).collect();
        if own.is_empty() {
            return Ok(());
        }
        let copies = keeper::hold_left(&own, owner, outlives)?;
        files.iter().zip(copies).for_each(|(file, copy)| _ = file.copy.set(copy));
        Ok(())
    }

    /// Gives the closer a copy, without waiting until it has it: if it has no descriptors left, a thread closes this one last.
    ///
    /// `outlives`: see [`outlives`](Self::outlives).
    ///
    /// # Errors
    /// The closer cannot be told.
    pub fn ask(&self, owner: Process, outlives: bool) -> io::Result<()> {
        if self.copy.get().is_none() {
            let _ = self.copy.set(keeper::ask(self.file.as_fd(), owner, outlives)?);
        }
        Ok(())
    }

    /// The keeper has a copy, too, for a successor of the switch: the closer, if it has one, neither shuts it down nor reads from it when the switch
    /// has ended.
    pub fn outlives(&self) {
        if let Some(copy) = self.copy.get() {
            copy.outlives();
        }
    }

    /// Whose closes it counts among, if the closer has a copy.
    pub fn owner(&self) -> Option<Process> {
        self.copy.get().map(|copy| copy.owner)
    }

    /// Returns true if the closer has a copy.
    pub fn is_held(&self) -> bool {
        self.copy.get().is_some_and(Copy::is_there)
    }
}

impl From<OwnedFd> for ClientFd {
    fn from(file: OwnedFd) -> Self {
        Self { file, copy: OnceLock::new() }
    }
}

impl Deref for ClientFd {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.file
    }
}

impl AsFd for ClientFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for ClientFd {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.get() {
            copy.forget();
        }
    }
}

/// Waits while many closes of this connection's client are on their way. For threads that serve this client alone.
pub fn wait_for_closes(connection: &ClientFd) {
    connection.owner().into_iter().for_each(keeper::wait_for_closes);
}

/// Has the closer receive `bytes` bytes from a connection, of which it has a copy, with the files that came with them. Calls `then` with
/// the files, on another thread or at once: with none if they cannot be had.
pub fn take_files(connection: &ClientFd, bytes: usize, then: impl FnOnce(Option<Vec<ClientFd>>) + Send + 'static) {
    take_files_as(connection, bytes, Taking::Receive, then);
}

/// The same, and also without taking them out of the socket, or without keeping them.
pub(in crate::front_end) fn take_files_as(
    connection: &ClientFd,
    bytes: usize,
    how: Taking,
    then: impl FnOnce(Option<Vec<ClientFd>>) + Send + 'static,
) {
    let Some(copy) = connection.copy.get() else { return then(None) };
    keeper::take(copy, bytes, how, |files| {
        let held = |(file, copy)| ClientFd { file, copy: OnceLock::from(copy) };
        then(files.map(|files| files.into_iter().map(held).collect()));
    });
}
