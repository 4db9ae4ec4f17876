//! Supervision of every run: Ctrl-C, a line each second, and the connection to the switch.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringway_traffic::{Progress, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::report::GenError;

/// A flag that is set when the run has to end.
pub type Stop = Arc<AtomicBool>;

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set.
///
/// # Errors
/// The signals cannot be caught.
pub fn stop_on_signals() -> Result<Stop, GenError> {
    let stop = Stop::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| GenError::Failed(format!("cannot catch signal {signal}: {error}")))?;
    }
    Ok(stop)
}

/// Runs `work` until it is done, `stop` is set, or the switch closes one of `connections`.
pub fn supervised<T>(
    stop: &Stop,
    connections: &[OwnedFd],
    work: impl FnOnce(&mut Watch<'_>) -> io::Result<T>,
) -> Result<T, GenError> {
    let gone = Cell::new(false);
    let show = io::stderr().is_terminal();
    // A sender at a low rate never waits for the switch, so it would not notice a closed connection.
    let mut progress = |progress: &Progress| {
        if show {
            eprintln!("{progress}");
        }
        if connections.iter().any(has_ended) {
            gone.set(true);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let result = work(&mut Watch::none().stop_by(stop).tell(&mut progress));
    match result {
        Err(error) => Err(GenError::Failed(error.to_string())),
        Ok(_) if gone.get() => Err(GenError::Failed("the switch ended the port".to_owned())),
        Ok(done) => Ok(done),
    }
}

fn has_ended(connection: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}
