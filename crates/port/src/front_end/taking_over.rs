//! Connections of a predecessor that the threads of their ports have not gone on with yet. Frames for these ports would be dropped.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

static NUMBER: Mutex<usize> = Mutex::new(0);
static DONE: Condvar = Condvar::new();

/// One of them. Dropped when its port goes on with it, or closes it.
pub(super) struct TakingOver(());

impl TakingOver {
    pub(super) fn begin() -> Self {
        *NUMBER.lock() += 1;
        Self(())
    }
}

impl Drop for TakingOver {
    fn drop(&mut self) {
        let mut number = NUMBER.lock();
        *number -= 1;
        if *number == 0 {
            DONE.notify_all();
        }
    }
}

/// Waits until ports have gone on with all connections of a predecessor, or the time has passed: what a port waits for, its client can prolong.
pub fn wait_until_taken_over(within: Duration) {
    let until = Instant::now() + within;
    DONE.wait_while_until(&mut NUMBER.lock(), |number| *number > 0, until);
}
