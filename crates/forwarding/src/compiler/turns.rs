//! How many modules are compiled at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::process::LOOK_EVERY;
use crate::limits::COMPILERS;

/// The number of compilers that run, for all runtimes of this process.
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The right to run a compiler.
pub(super) struct Turn(());

impl Turn {
    /// Waits until fewer than [`COMPILERS`] run. `None`: `stop` became true.
    pub(super) fn wait(stop: &AtomicBool) -> Option<Turn> {
        let mut running = running();
        while *running >= COMPILERS && !stop.load(Ordering::Relaxed) {
            running = ENDED.wait_timeout(running, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        *running += 1;
        Some(Turn(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *running() -= 1;
        ENDED.notify_all();
    }
}

fn running() -> MutexGuard<'static, usize> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
