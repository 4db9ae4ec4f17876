//! Descriptors as front ends have them.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;

pub fn memfd(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, bytes).expect("a length");
    file
}

pub fn new_eventfd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// How often it was written since it was last asked.
#[cfg(test)]
pub fn count(eventfd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(eventfd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}
