//! Descriptors of a port that the keeper has, too.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ringway_keeper::{Guard, Releasing};
use ringway_port::front_end::ClientFd;

/// Longest wait for the keeper to close its copies.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// What the keeper has of a port. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Keeping(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Kept(Guard),
    Leaving(Releasing),
}

impl Keeping {
    /// The keeper has the port now.
    pub(super) fn begin(&self, guard: Guard) {
        *self.0.lock() = Held::Kept(guard);
    }

    /// Has the keeper close its copies, without waiting for that.
    pub(super) fn release(&self) {
        let mut held = self.0.lock();
        *held = match std::mem::take(&mut *held) {
            Held::Kept(guard) => Held::Leaving(guard.begin_release()),
            other => other,
        };
    }

    /// Waits until the keeper has closed its copies.
    fn wait(&self) {
        self.release();
        let held = std::mem::take(&mut *self.0.lock());
        if let Held::Leaving(releasing) = held {
            releasing.wait(CLOSED_WITHIN);
        }
    }
}

/// A descriptor of a port. Dropping it waits until the keeper has closed its copies: a client can have the last close wait, and the keeper must
/// not be the one.
#[derive(Debug)]
pub struct KeptFd {
    fd: ClientFd,
    keeping: Keeping,
}

impl KeptFd {
    pub(super) fn new(fd: ClientFd, keeping: &Keeping) -> Self {
        Self { fd, keeping: keeping.clone() }
    }
}

impl Drop for KeptFd {
    fn drop(&mut self) {
        self.keeping.wait();
    }
}

impl Deref for KeptFd {
    type Target = ClientFd;

    fn deref(&self) -> &ClientFd {
        &self.fd
    }
}

impl AsFd for KeptFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
