//! The descriptor for a program's own select, poll or epoll: readable while there are frames, also frames that are left in the ring,
//! and when the source has ended.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::source::Source;
use crate::wait;

/// Identifies `left`: no descriptor of the source has this number.
const LEFT: u64 = u64::MAX;

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
        let epoll = wait::with(&source.descriptors())?;
        let left = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &left, EventData::new_u64(LEFT), EventFlags::IN)?;
        Ok(Selectable { epoll, left, is_left: false })
    }

    pub fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Makes the descriptor readable if frames are left, and otherwise asks the source for a wake-up. No frame is held.
    pub fn settle(&mut self, source: &mut Source) {
        let mut is_left = source.arm();
        if !is_left {
            // A wake-up that came meanwhile is forgotten, too: what it told of is seen by a second look.
            self.forget_wake_ups();
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

    /// Takes the edges of the source's eventfd. What is readable by its level stays so.
    fn forget_wake_ups(&self) {
        let mut events = [const { Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 3];
        let _ = epoll::wait(&self.epoll, &mut events[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}
