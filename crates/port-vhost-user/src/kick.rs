//! Kicks from guests. Kick eventfds come and go with each connection.
//!
//! A queue without a kick eventfd is polled: a sleeping poller looks at the queue at intervals.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_runtime::Watch;
use rustix::event::{EventfdFlags, eventfd};

use ringway_port::front_end::ClientFd;

/// The eventfds that wake a port's poller.
#[derive(Debug)]
pub(super) struct Kicks {
    watch: Watch,
    /// The device's own eventfd, written when the device has changed.
    wake: Arc<OwnedFd>,
}

impl Kicks {
    pub(super) fn new() -> io::Result<Kicks> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let watch = Watch::new();
        watch.add(wake.clone())?;
        Ok(Kicks { watch, wake })
    }

    /// Returns what a poller waits for.
    pub(super) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Adds a guest's eventfd.
    pub(super) fn add(&self, kick: &Arc<ClientFd>) -> io::Result<()> {
        self.watch.add(kick.clone())
    }

    /// Removes a guest's eventfd, if it is here.
    pub(super) fn remove(&self, kick: &Arc<ClientFd>) {
        // The caller has the other reference, and closes the eventfd.
        let _ = self.watch.remove(&**kick);
    }

    /// Wakes the poller.
    pub(super) fn wake(&self) {
        // The eventfd belongs to this process alone. If its counter is full, it is readable already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}
