//! The interrupts of a function: eventfds from the front end, in a table. Pollers and the port's thread signal them, without
//! a lock held meanwhile.
//!
//! The pin is not triggered again until QEMU unmasks it by a message, or KVM by an eventfd (see `unmask`).

use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ringway_port::front_end::ClientFd;
use ringway_runtime::{CallAccount, Called};
use rustix::io::ReadWriteFlags;

use super::function::Mode;

/// The interrupts of a device: the connection sets their eventfds, and the function triggers them. Empty while no front
/// end is connected.
#[derive(Debug, Default)]
pub struct Interrupts {
    mode: AtomicU8,
    /// True if the guest has disabled the pin in the configuration space.
    disabled: AtomicBool,
    inner: Mutex<Inner>,
    account: CallAccount,
    /// Written when signalling an interrupt took too long.
    blocked: OnceLock<OwnedFd>,
    poll_state: PollState,
}

/// Tells whether the port's own thread polls its connection. If not, an interrupt wakes the thread, because the guest
/// will read registers.
#[derive(Debug, Default)]
struct PollState {
    paused: AtomicBool,
    wake: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct Inner {
    vectors: Vec<Option<Arc<ClientFd>>>,
    /// The pin was triggered and not unmasked since.
    triggered: bool,
    /// The front end has masked the pin.
    masked: bool,
}

impl Interrupts {
    /// Returns the kind of interrupts that the front end has enabled.
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

    /// Triggers an interrupt (0 for the pin). Any thread may call it. Returns false, without effect, if the interrupt
    /// has no eventfd, or if the pin is disabled or masked. When that changes,
    /// [`Function::unmasked`](super::Function::unmasked) is called.
    pub fn trigger(&self, vector: usize) -> bool {
        let call = {
            let mut inner = self.inner.lock();
            let pin = self.mode() == Mode::Intx;
            if pin && (inner.triggered || inner.masked || self.disabled.load(Ordering::Relaxed)) {
                return false;
            }
            let Some(Some(call)) = inner.vectors.get(vector) else { return false };
            let call = Arc::clone(call);
            inner.triggered = pin;
            call
        };
        // Without the lock: the front end can make this block for a moment.
        if ringway_runtime::call(call.as_fd(), &self.account) != Called::Done {
            self.report_blocked();
        }
        // After an MSI-X interrupt the driver reads no register.
        if self.poll_state.paused.load(Ordering::Relaxed)
            && self.mode() != Mode::MsiX
            && self.poll_state.paused.swap(false, Ordering::Relaxed)
            && let Some(wake) = self.poll_state.wake.get()
        {
            // The eventfd belongs to this process alone. If its counter is full, it is readable already.
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
        true
    }

    /// Handles a signal that took too long: no interrupt is signalled any more, and the front end loses its connection.
    #[cold]
    fn report_blocked(&self) {
        let mut inner = self.inner.lock();
        let old = std::mem::take(&mut inner.vectors);
        drop(inner);
        drop(old);
        if let Some(blocked) = self.blocked.get() {
            // The eventfd belongs to this process alone. If its counter is full, it is readable already.
            let _ = rustix::io::write(blocked, &1u64.to_ne_bytes());
        }
    }

    /// What is known of the calls to the front end.
    #[inline]
    pub fn account(&self) -> &CallAccount {
        &self.account
    }

    /// Sets the eventfd that wakes the port's own thread when there is an interrupt while it does not poll its
    /// connection.
    pub(super) fn wake_by(&self, eventfd: OwnedFd) {
        let _ = self.poll_state.wake.set(eventfd);
    }

    /// The port's own thread stops (`paused`) or resumes polling its connection.
    pub(super) fn pause_polling(&self, paused: bool) {
        self.poll_state.paused.store(paused, Ordering::Relaxed);
    }

    /// Sets the eventfd to write when signalling an interrupt took too long.
    pub(super) fn report_blocked_to(&self, eventfd: OwnedFd) {
        let _ = self.blocked.set(eventfd);
    }

    /// Sets the eventfds of the interrupts from `first` on. `most` is the number of interrupts of this kind.
    pub(crate) fn set(&self, mode: Mode, most: usize, first: usize, calls: impl Iterator<Item = Option<ClientFd>>) {
        let mut inner = self.inner.lock();
        let mut old = Vec::new();
        if self.mode() != mode {
            old = std::mem::take(&mut *inner).vectors;
            self.mode.store(mode as u8, Ordering::Release);
        }
        inner.vectors.resize(most, None);
        for (vector, call) in inner.vectors.iter_mut().skip(first).zip(calls) {
            old.push(std::mem::replace(vector, call.map(Arc::new)));
        }
        drop(inner);
        // Without the lock.
        drop(old);
    }

    /// Disables or enables the pin. After enabling, the caller triggers it if a cause is pending.
    pub(crate) fn disable_pin(&self, disabled: bool) {
        self.disabled.store(disabled, Ordering::Relaxed);
    }

    /// Masks or unmasks the pin.
    pub(crate) fn mask(&self, masked: bool) {
        let mut inner = self.inner.lock();
        inner.masked = masked;
        inner.triggered &= masked;
    }

    /// Returns true if the front end has masked the pin.
    pub(crate) fn is_masked(&self) -> bool {
        self.inner.lock().masked
    }

    /// Takes a trigger of the pin back that the front end has not seen yet: the guest has cleared its causes. Returns true if there was
    /// one; the caller triggers it if a cause is pending.
    ///
    /// QEMU would raise the pin of a device without a cause, and lower it only at the next access to a register. A driver whose handler
    /// reads configuration space alone (UIO, vfio) would be interrupted without end.
    ///
    /// Only the port's own thread calls this, with no lock held: the front end can make it slow.
    pub(crate) fn withdraw_pin(&self) -> bool {
        let call = {
            let inner = self.inner.lock();
            let call = inner.vectors.first().cloned().flatten();
            if self.mode() != Mode::Intx || !inner.triggered { None } else { call }
        };
        let Some(call) = call else { return false };
        // Whatever the descriptor's flags are, this does not wait. A kernel that cannot promise it refuses.
        let withdrawn =
            rustix::io::preadv2(&call, &mut [IoSliceMut::new(&mut [0; 8])], u64::MAX, ReadWriteFlags::NOWAIT).is_ok();
        self.inner.lock().triggered &= !withdrawn;
        withdrawn
    }

    /// Restores the state without a connection.
    pub(super) fn clear(&self) {
        let mut inner = self.inner.lock();
        let old = std::mem::take(&mut *inner);
        self.mode.store(Mode::None as u8, Ordering::Release);
        drop(inner);
        drop(old);
    }
}
