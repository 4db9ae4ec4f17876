//! The interrupts of a function: eventfds that the front end gives, written by whoever has news for the guest.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use super::Mode;

/// Shared by a connection, which fills it, and a function, which triggers. Empty while there is no connection.
#[derive(Debug, Default)]
pub struct Interrupts {
    mode: AtomicU8,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    vectors: Vec<Option<OwnedFd>>,
    /// The pin was triggered and not unmasked since, or the front end masked it.
    masked: bool,
}

impl Interrupts {
    /// Which the front end has chosen.
    #[inline]
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Acquire) {
            1 => Mode::Intx,
            2 => Mode::Msi,
            3 => Mode::MsiX,
            _ => Mode::None,
        }
    }

    /// Triggers an interrupt (0 for the pin), from any thread. False: the front end wants none of this number, or the pin is
    /// masked; [`Function::unmasked`](super::Function::unmasked) follows then.
    pub fn trigger(&self, vector: usize) -> bool {
        let pin = self.mode() == Mode::Intx;
        let mut inner = self.inner.lock();
        if pin && inner.masked {
            return false;
        }
        let Some(Some(call)) = inner.vectors.get(vector) else { return false };
        // A full counter is as good as a write.
        let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        inner.masked = pin;
        true
    }
}
