//! The eventfd by which KVM unmasks the pin, behind an epoll descriptor that stays the same over connections.
//!
//! The epoll descriptor watches edges. The port never reads an eventfd that another process could read first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use ringway_port::front_end::ClientFd;

/// An epoll set that becomes readable when the unmask eventfd is written. It is edge-triggered, so that the eventfd
/// need not be read: the front end could make a read block.
pub struct Unmask {
    epoll: OwnedFd,
    eventfd: Option<ClientFd>,
}

impl Unmask {
    /// Starts without an eventfd.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new() -> io::Result<Unmask> {
        Ok(Unmask { epoll: epoll::create(CreateFlags::CLOEXEC)?, eventfd: None })
    }

    /// Replaces the eventfd.
    ///
    /// # Errors
    /// The kernel cannot wait for the new one. Then there is none.
    pub fn set(&mut self, eventfd: Option<ClientFd>) -> io::Result<()> {
        if let Some(before) = self.eventfd.take() {
            // Closing the eventfd does not remove it from the set while another process has it open.
            let _ = epoll::delete(&self.epoll, &before);
        }
        if let Some(eventfd) = eventfd {
            epoll::add(&self.epoll, &eventfd, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
            self.eventfd = Some(eventfd);
        }
        Ok(())
    }

    /// Returns true if the eventfd was written since the last call.
    pub fn take(&self) -> bool {
        let mut events = Vec::with_capacity(1);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now)).is_ok_and(|count| count > 0)
    }
}

impl AsFd for Unmask {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
