//! Closes what belongs to network devices on a thread that does nothing else.
//!
//! The last close of a TAP device, of a packet socket, or of a program's link waits for the lock of all network devices (RTNL), which any
//! user can hold for as long as he likes: by a request about `lo` whose answer the kernel cannot write. So a thread that serves others
//! leaves these closes to this one. All of them wait for the same lock: one thread is enough.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

/// Something to be closed. Dropping it closes it.
type Closed = Box<dyn Send>;

/// The number of things that are not closed yet.
static UNCLOSED: AtomicUsize = AtomicUsize::new(0);

/// Returns how much of removed ports' devices is not closed yet.
#[must_use]
pub fn unclosed_devices() -> usize {
    UNCLOSED.load(Ordering::Acquire)
}

/// A part of an open device. Dropping this never waits: another thread closes the part.
#[derive(Debug)]
pub(crate) struct ClosedApart<T: Send + 'static>(ManuallyDrop<T>);

impl<T: Send + 'static> ClosedApart<T> {
    pub(crate) fn new(part: T) -> Self {
        Self(ManuallyDrop::new(part))
    }
}

impl<T: Send + 'static> Deref for ClosedApart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + 'static> DerefMut for ClosedApart<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: AsFd + Send + 'static> AsFd for ClosedApart<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: Send + 'static> Drop for ClosedApart<T> {
    fn drop(&mut self) {
        // SAFETY: the part is taken here only, and never used again.
        let part = unsafe { ManuallyDrop::take(&mut self.0) };
        close(Box::new(part));
    }
}

/// Has the thread close this. Without a thread, closes it here.
fn close(part: Closed) {
    static QUEUE: OnceLock<Option<Sender<Closed>>> = OnceLock::new();
    let start = || {
        let (queue, parts) = channel::<Closed>();
        let thread = std::thread::Builder::new().name("close-device".to_owned()).spawn(move || {
            for part in parts {
                drop(part);
                UNCLOSED.fetch_sub(1, Ordering::Release);
            }
        });
        thread.ok().map(|_| queue)
    };
    if let Some(queue) = QUEUE.get_or_init(start) {
        UNCLOSED.fetch_add(1, Ordering::Relaxed);
        // The thread lives as long as the process.
        let _ = queue.send(part);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use ringway_testing::until;

    use super::*;

    #[test]
    fn dropping_a_part_of_a_device_does_not_wait_for_its_close() {
        /// A close that waits until it may end.
        struct Slow(Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let (end, may_end) = channel();
        drop(ClosedApart::new(Slow(may_end)));
        assert!(unclosed_devices() > 0);
        drop(end);
        until("all is closed", || unclosed_devices() == 0);
    }
}
