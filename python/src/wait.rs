//! Sleeps of threads, and descriptors for event loops.
//!
//! Several threads may sleep for one port, and event loops watch it, too. So nobody reads the eventfd of the port's calls:
//! each sleeper has an epoll instance of its own, in which every call is an edge.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use ringway_client::Port;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

const CALLED: u64 = 0;
const ENDED: u64 = 1;
const OTHER: u64 = 2;

fn watch(port: &Port, other: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&set, port.call_fd(), EventData::new_u64(CALLED), EventFlags::IN | EventFlags::ET)?;
    epoll::add(&set, port.connection_fd(), EventData::new_u64(ENDED), EventFlags::IN)?;
    epoll::add(&set, other, EventData::new_u64(OTHER), EventFlags::IN)?;
    Ok(set)
}

/// Waits for `set` for at most `time` (`None`: without limit). Takes the edges.
fn wait(set: &OwnedFd, time: Option<Duration>) -> rustix::io::Result<()> {
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let mut events = [const { epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 3];
    epoll::wait(set, &mut events[..], time.as_ref()).map(drop)
}

/// An eventfd of this side.
pub(crate) struct Flag {
    file: OwnedFd,
    up: bool,
}

impl Flag {
    pub(crate) fn new() -> io::Result<Flag> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Flag { file, up: false })
    }

    /// Makes the eventfd readable, or not.
    pub(crate) fn set(&mut self, up: bool) {
        if up != self.up {
            // Neither can fail: the counter is 0 or 1.
            let _ = if up {
                rustix::io::write(&self.file, &1u64.to_ne_bytes())
            } else {
                rustix::io::read(&self.file, &mut [0; 8])
            };
            self.up = up;
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What one thread sleeps with.
pub(crate) struct Sleeper {
    set: OwnedFd,
}

impl Sleeper {
    /// Wakes for calls, for the end of the port, and when `closed` is up.
    pub(crate) fn new(port: &Port, closed: &Flag) -> io::Result<Sleeper> {
        Ok(Sleeper { set: watch(port, closed.as_fd())? })
    }

    /// Sleeps for at most `time`. May return early without a reason.
    ///
    /// # Errors
    /// `INTR`: a signal came.
    pub(crate) fn sleep(&self, time: Option<Duration>) -> rustix::io::Result<()> {
        wait(&self.set, time)
    }
}

/// A descriptor for event loops: readable while there is something to do for one direction of the port.
pub(crate) struct Watch {
    set: OwnedFd,
    ready: Flag,
}

impl Watch {
    pub(crate) fn new(port: &Port) -> io::Result<Watch> {
        let ready = Flag::new()?;
        Ok(Watch { set: watch(port, ready.as_fd())?, ready })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Makes the descriptor tell the truth: `want` asks for a call and returns true if there is something already.
    pub(crate) fn arm(&mut self, want: impl FnOnce() -> bool) -> bool {
        // Edges up to here belong to what `want` looks at next.
        let _ = wait(&self.set, Some(Duration::ZERO));
        let ready = want();
        self.ready.set(ready);
        ready
    }

    /// There is something: the descriptor is readable.
    pub(crate) fn raise(&mut self) {
        self.ready.set(true);
    }
}
