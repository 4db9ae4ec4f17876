//! Signals for the switch, which go through the keeper.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals for the switch, each readable here once it has come.
pub(super) struct Signals {
    pub(super) end: UnixStream,
    pub(super) reload: UnixStream,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let pipe = |signals: &[i32]| {
            let (come, write) = UnixStream::pair()?;
            come.set_nonblocking(true)?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
            }
            Ok::<_, io::Error>(come)
        };
        Ok(Self { end: pipe(&[SIGTERM, SIGINT])?, reload: pipe(&[SIGHUP])? })
    }
}

/// Returns true if one has come, once.
pub(super) fn has_come(signal: &UnixStream) -> bool {
    let mut has = false;
    let mut bytes = [0; 64];
    while matches!(rustix::io::read(signal, &mut bytes), Ok(1..)) {
        has = true;
    }
    has
}
