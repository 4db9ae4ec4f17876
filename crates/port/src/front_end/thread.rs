//! A port's own thread, and the signal that ends the thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_runtime::contain;
use ringway_runtime::serving::serve;
use ringway_switch::{Defect, Role, take_receiving};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::observer::Observer;

/// Longest wait for a port's thread when the port is dropped.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// A running thread. Dropping it tells the thread to stop and waits for it, for at most [`ENDS_WITHIN`].
pub struct Thread {
    stop: Arc<OwnedFd>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread named after `label`. If it panics, `observer` is told that the port has failed.
    ///
    /// # Errors
    /// The kernel has no descriptors or threads left.
    pub fn start(
        label: &str,
        observer: Arc<dyn Observer>,
        run: impl FnOnce(Stop) + Send + 'static,
    ) -> io::Result<Thread> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (alive, done) = channel();
        let name = label.chars().take(15).filter(|&c| c != '\0').collect();
        let (told, port) = (Stop(Arc::clone(&stop)), label.to_owned());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // Dropped when the thread ends, which disconnects `done`.
            let _alive = alive;
            ringway_runtime::guard_thread();
            let _serving = serve(&port);
            // A panic drops everything that the thread owned, so the front end sees the end of its connection.
            if let Err(place) = contain(|| run(told)) {
                let role = if take_receiving() { Role::Receiver } else { Role::Thread };
                let _ = contain(|| observer.failed(Defect { role, place }));
            }
        })?;
        Ok(Thread { stop, done, thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The eventfd belongs to this process alone. If its counter is full, it is readable already.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + ENDS_WITHIN;
        // Closing files that a front end has sent can block (SO_LINGER). A signal interrupts some of these waits.
        while self.done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            if Instant::now() >= until {
                // The thread blocks in a file of its front end that no signal interrupts (FUSE). The caller must not
                // wait for it: the thread keeps its resources and ends when it can.
                return;
            }
            ringway_runtime::interrupt(&thread);
        }
        let _ = thread.join();
    }
}

/// Becomes readable when the thread has to stop.
pub struct Stop(Arc<OwnedFd>);

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stop {
    /// Waits for at most `time`. Returns true when the thread has to stop.
    pub fn wait_timeout(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let mut fds = [PollFd::new(self, PollFlags::IN)];
            wait(&mut fds, Some(until));
            if !fds[0].revents().is_empty() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }
}

/// Waits until one of the descriptors is ready, or until the time `until`.
pub fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Slightly longer, so that the time has certainly come when the wait ends.
    let left = left.map(|left| if left.is_zero() { left } else { left + Duration::from_micros(100) });
    let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
    if poll(fds, left.as_ref()).is_err() {
        // Interrupted by a signal: the next poll finds whatever is ready.
        fds.iter_mut().for_each(PollFd::clear_revents);
    }
}

#[cfg(test)]
mod tests {
    use ringway_testing::{PATIENCE, until_some};

    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn connected(&self, _: bool) {}
        fn fault(&self, _: &'static str, _: String) {}
    }

    /// Notes the role of the defect that the port failed with.
    #[derive(Default)]
    struct Told(parking_lot::Mutex<Option<Role>>);

    impl Observer for Told {
        fn connected(&self, _: bool) {}
        fn fault(&self, _: &'static str, _: String) {}
        fn failed(&self, defect: Defect) {
            *self.0.lock() = Some(defect.role);
        }
    }

    #[test]
    fn a_port_is_not_blamed_for_what_its_thread_sends_of_others_frames() {
        let role = |run: fn(Stop)| {
            let told = Arc::new(Told::default());
            drop(Thread::start("fails", Arc::clone(&told) as _, run).expect("a thread"));
            until_some("the port has failed", || *told.0.lock())
        };
        assert_eq!(role(|_| panic!("injected")), Role::Thread);
        assert_eq!(role(|_| ringway_switch::giving(|| panic!("injected"))), Role::Receiver);
    }

    #[test]
    fn a_thread_that_waits_for_its_front_end_holds_up_nobody_who_ends_the_port() {
        let (front_end, answer) = channel::<()>();
        let (ended, end) = channel::<()>();
        let thread = Thread::start("stuck", Arc::new(Nobody), move |_stop| {
            let _ended = ended;
            // Stands for close(2) of a file in a file system that the front end serves.
            let _ = answer.recv();
        });
        drop(thread.expect("a thread"));
        assert_eq!(end.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout), "it waits still");
        drop(front_end);
        assert_eq!(end.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "it ends when it can");
    }
}
