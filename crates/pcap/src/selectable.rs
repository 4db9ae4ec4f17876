//! The descriptor for a program's own select, poll or epoll: readable while there are frames, also frames that are left in the ring,
//! and when the source has ended.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::source::Source;

/// An epoll instance of the source's descriptors and an eventfd.
#[derive(Debug)]
pub struct Selectable {
    epoll: OwnedFd,
    /// Readable while frames are left that no descriptor of the source tells of.
    left: OwnedFd,
    is_left: bool,
}

impl Selectable {
    pub fn new(source: &Source) -> io::Result<Selectable> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let left = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &left, EventData::new_u64(0), EventFlags::IN)?;
        let [wake, end] = source.descriptors();
        epoll::add(&epoll, wake, EventData::new_u64(1), EventFlags::IN)?;
        if wake.as_raw_fd() != end.as_raw_fd() {
            epoll::add(&epoll, end, EventData::new_u64(2), EventFlags::IN)?;
        }
        Ok(Selectable { epoll, left, is_left: false })
    }

    pub fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Makes the descriptor readable if frames are left, and otherwise asks the source for a wake-up. No frame is held.
    pub fn settle(&mut self, source: &mut Source) {
        let mut is_left = source.arm();
        if !is_left {
            // A wake-up that came meanwhile is cleared, too: what it told of is seen by a second look.
            source.clear();
            is_left = source.arm();
        }
        if is_left == self.is_left {
            return;
        }
        self.is_left = is_left;
        let _ = match is_left {
            true => rustix::io::write(&self.left, &1u64.to_ne_bytes()),
            false => rustix::io::read(&self.left, &mut [0; 8]),
        };
    }
}
