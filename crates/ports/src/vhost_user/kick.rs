//! Kicks from guests. Kick eventfds change with every connection, so a poller waits for one epoll descriptor of the port that
//! contains them (an epoll instance can be waited for like any other descriptor, epoll(7)).
//!
//! A queue without a kick eventfd is polled: a sleeping poller looks at the queue at intervals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

/// The descriptors that wake a port's poller.
#[derive(Debug)]
pub(super) struct Kicks {
    epoll: OwnedFd,
    /// Our own: the device has changed.
    wake: OwnedFd,
}

/// Edges, so that nothing needs to be read: each write to an eventfd is one.
fn edges() -> EventFlags {
    EventFlags::IN | EventFlags::ET
}

impl Kicks {
    pub(super) fn new() -> io::Result<Kicks> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(0), edges())?;
        Ok(Kicks { epoll, wake })
    }

    /// What a poller waits for.
    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        self.epoll.as_fd().try_clone_to_owned()
    }

    pub(super) fn add(&self, kick: &OwnedFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, kick, EventData::new_u64(0), edges())?)
    }

    pub(super) fn remove(&self, kick: &OwnedFd) {
        // A descriptor that is not there is as good as one removed.
        let _ = epoll::delete(&self.epoll, kick);
    }

    /// Makes the poller look.
    pub(super) fn wake(&self) {
        // Only this process has the descriptor; a full counter is as good as a write.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
