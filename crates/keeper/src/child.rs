//! A process that a keeper has started.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Why a process cannot be the switch of a keeper.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The kernel refused something.
    #[error("cannot talk to the keeper: {0}")]
    System(#[from] rustix::io::Errno),
    /// The keeper ended, or says what this version does not understand.
    #[error("the keeper does not say what was left")]
    Keeper,
}

/// The socket that the keeper gave this process as its standard input. The process gets this name, and ends with the keeper.
pub(crate) fn from_stdin(name: &CStr) -> Result<OwnedFd, NotStarted> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    if is_orphan() {
        return Err(NotStarted::Keeper);
    }
    let socket = standard_input()?;
    // Else its name is that of the link by which its program was found.
    let _ = rustix::thread::set_name(name);
    Ok(socket)
}

/// The standard input, which is `/dev/null` afterwards: no process that this one starts inherits it.
pub(crate) fn standard_input() -> Result<OwnedFd, NotStarted> {
    let input = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(input)
}

/// Returns true if the keeper has ended: its end of the socket is closed.
fn is_orphan() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let input = io::stdin();
    let mut ends = [PollFd::new(&input, PollFlags::RDHUP)];
    let polled = poll(&mut ends, Some(&Timespec::default()));
    polled.is_err() || ends[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}
