//! A port's own thread, and how it is told to end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Connection;
use super::listener::Listener;
use super::receiver::{MESSAGE_WITHIN, Sent, send};

/// Between two tries to get what is not there for now.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// A running thread. Told to end, and waited for, when dropped.
pub(crate) struct Thread {
    stop: Arc<OwnedFd>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread that is named after `label`.
    ///
    /// # Errors
    /// The kernel has no descriptors or threads left.
    pub(crate) fn start(label: &str, run: impl FnOnce(Stop) + Send + 'static) -> io::Result<Thread> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (alive, done) = channel();
        let name = label.chars().take(15).filter(|&c| c != '\0').collect();
        let told = Stop(Arc::clone(&stop));
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // Dropped when the thread ends.
            let _alive = alive;
            ringway_engine::watch_calls();
            run(told);
        })?;
        Ok(Thread { stop, done, thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Only this process has the descriptor; a full counter is as good as a write.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return };
        // A front end can make its eventfds block a write: the signal that interrupts pollers ends that, too.
        while self.done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            // SAFETY: the thread has not been joined, so that its handle is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGURG) };
        }
        let _ = thread.join();
    }
}

/// Becomes readable when the thread is to end.
pub(crate) struct Stop(Arc<OwnedFd>);

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stop {
    /// Waits; true when the thread is to end.
    pub(crate) fn within(&self, time: Duration) -> bool {
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

    /// The next front end that connects to `listener`; `None` when the thread is to end.
    pub(crate) fn or_accept(&self, listener: &Listener) -> Option<Connection> {
        loop {
            let mut fds = [PollFd::new(self, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            wait(&mut fds, None);
            if !fds[0].revents().is_empty() {
                return None;
            }
            if fds[1].revents().is_empty() {
                continue;
            }
            match listener.accept() {
                Ok(socket) => return Some(socket),
                // Out of descriptors, mostly: the front end waits, and so do we.
                Err(_) if self.within(TRY_EVERY) => return None,
                Err(_) => {}
            }
        }
    }

    /// The next connection to who listens at `path`; `None` when the thread is to end.
    pub(crate) fn or_connect(&self, path: &std::path::Path) -> Option<Connection> {
        loop {
            if let Ok(socket) = super::connect(path) {
                return Some(socket);
            }
            if self.within(TRY_EVERY) {
                return None;
            }
        }
    }

    /// Sends an answer, to a front end that may have to read earlier ones first.
    pub(crate) fn or_send(&self, socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Answered {
        let mut until = None;
        loop {
            match send(socket, bytes, file) {
                Sent::Done => return Answered::Done,
                Sent::Gone => return Answered::Gone,
                Sent::Full => {}
            }
            let until = *until.get_or_insert_with(|| Instant::now() + MESSAGE_WITHIN);
            let mut fds = [PollFd::new(self, PollFlags::IN), PollFd::new(socket, PollFlags::OUT)];
            wait(&mut fds, Some(until));
            if !fds[0].revents().is_empty() {
                return Answered::Stop;
            }
            if Instant::now() >= until {
                return Answered::Unread;
            }
        }
    }
}

/// What came of an answer.
pub(crate) enum Answered {
    /// It is on its way.
    Done,
    /// The front end has gone.
    Gone,
    /// The thread is to end.
    Stop,
    /// The front end did not read earlier answers within [`MESSAGE_WITHIN`].
    Unread,
}

/// Waits until one of the descriptors is ready or it is `until`.
pub(crate) fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // A little longer, so that the time has come when the wait ends.
    let left = left.map(|left| if left.is_zero() { left } else { left + Duration::from_micros(100) });
    let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
    if poll(fds, left.as_ref()).is_err() {
        // Interrupted: nothing is ready that the next look will not find.
        fds.iter_mut().for_each(PollFd::clear_revents);
    }
}
