//! The interrupts of a function: eventfds from the front end, in a table. Pollers and the port's thread signal them, without
//! a lock held meanwhile.
//!
//! The pin stays masked from its trigger until QEMU unmasks it by a message, or KVM by an eventfd (see `unmask`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ringway_engine::Called;

use super::Mode;

/// Shared by a connection, which fills it, and a function, which triggers. Empty while there is no connection.
#[derive(Debug, Default)]
pub struct Interrupts {
    mode: AtomicU8,
    /// The guest has the pin disabled in the configuration space.
    disabled: AtomicBool,
    inner: Mutex<Inner>,
    /// Written when a call lasted.
    blocked: OnceLock<OwnedFd>,
    attention: Attention,
}

/// Whether the port's own thread looks at its connection; where not, it is told of interrupts that guests ask registers about.
#[derive(Debug, Default)]
struct Attention {
    away: AtomicBool,
    wake: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct Inner {
    vectors: Vec<Option<Arc<OwnedFd>>>,
    /// What was taken out of `vectors` by a thread that is not to close it.
    retired: Vec<Option<Arc<OwnedFd>>>,
    /// The pin was triggered and not unmasked since, or the front end masked it.
    masked: bool,
}

impl Inner {
    /// Closes all eventfds on the calling thread, which is the port's own, without a lock. The last close of an eventfd takes as long as its
    /// front end likes: the kernel removes each epoll item of it (350 ms for a million).
    fn close(self) {
        for call in self.vectors.into_iter().chain(self.retired).flatten() {
            let mut call = Some(call);
            // Another thread may be signalling it, and is not to be the last to have it.
            while let Some(Err(used)) = call.take().map(Arc::try_unwrap) {
                call = Some(used);
                std::thread::yield_now();
            }
        }
    }
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
    /// disabled, or masked; [`Function::unmasked`](super::Function::unmasked) follows when that changes.
    pub fn trigger(&self, vector: usize) -> bool {
        let call = {
            let mut inner = self.inner.lock();
            let pin = self.mode() == Mode::Intx;
            if pin && (inner.masked || self.disabled.load(Ordering::Relaxed)) {
                return false;
            }
            let Some(Some(call)) = inner.vectors.get(vector) else { return false };
            let call = Arc::clone(call);
            inner.masked = pin;
            call
        };
        // Without the lock, as the front end can make this last for a moment.
        if ringway_engine::call(call.as_fd()) == Called::Blocked {
            self.report_blocked();
        }
        // With MSI-X the message says it all.
        if self.attention.away.load(Ordering::Relaxed)
            && self.mode() != Mode::MsiX
            && self.attention.away.swap(false, Ordering::Relaxed)
            && let Some(wake) = self.attention.wake.get()
        {
            // Only this process has the descriptor; a full counter is as good as a write.
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
        true
    }

    /// A call lasted: the front end is not called again, and loses its connection.
    #[cold]
    fn report_blocked(&self) {
        let mut inner = self.inner.lock();
        let Inner { vectors, retired, .. } = &mut *inner;
        retired.append(vectors);
        drop(inner);
        if let Some(blocked) = self.blocked.get() {
            // Only this process has the descriptor; a full counter is as good as a write.
            let _ = rustix::io::write(blocked, &1u64.to_ne_bytes());
        }
    }

    /// Where to tell the port's own thread of an interrupt while it looks away.
    pub(super) fn wake_by(&self, eventfd: OwnedFd) {
        let _ = self.attention.wake.set(eventfd);
    }

    /// The port's own thread does not look at its connection from now on, or does again.
    pub(super) fn look_away(&self, away: bool) {
        self.attention.away.store(away, Ordering::Relaxed);
    }

    /// Where to report that a call lasted.
    pub(super) fn report_blocked_to(&self, eventfd: OwnedFd) {
        let _ = self.blocked.set(eventfd);
    }

    /// What to write for the interrupts from `first` on; `most` is how many the function has of this kind.
    pub(crate) fn set(&self, mode: Mode, most: usize, first: usize, calls: impl Iterator<Item = Option<OwnedFd>>) {
        let mut inner = self.inner.lock();
        let mut old = Inner::default();
        if self.mode() != mode {
            old = std::mem::take(&mut *inner);
            self.mode.store(mode as u8, Ordering::Release);
        }
        inner.vectors.resize(most, None);
        for (vector, call) in inner.vectors.iter_mut().skip(first).zip(calls) {
            old.retired.push(std::mem::replace(vector, call.map(Arc::new)));
        }
        drop(inner);
        old.close();
    }

    /// Disables the pin, or enables it; who has raised it meanwhile triggers it then.
    pub(crate) fn disable_pin(&self, disabled: bool) {
        self.disabled.store(disabled, Ordering::Relaxed);
    }

    /// Masks or unmasks the pin.
    pub(super) fn mask(&self, masked: bool) {
        self.inner.lock().masked = masked;
    }

    /// As without a connection.
    pub(super) fn clear(&self) {
        let mut inner = self.inner.lock();
        let old = std::mem::take(&mut *inner);
        self.mode.store(Mode::None as u8, Ordering::Release);
        drop(inner);
        old.close();
    }
}
