//! Closing what clients have sent, on threads that serve no port: how long a close lasts is the sender's choice (`files.rs`).
//!
//! One process occupies a few of these threads at most, so that the files of others are closed meanwhile. What waits to be
//! closed is a descriptor of the switch. So a process for which too much of it waits may send no more files, and nobody may
//! while all together have too much.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ringway_engine::{contain, guard_thread, warn_limited};
use rustix::net::{Shutdown, shutdown};

use super::files::receive;

/// The number of the process that has sent a file, if it has one in this process's PID namespace.
pub type Process = Option<NonZeroU32>;

/// Most closes of one process that have not ended while it may still send files.
const MOST_OF_PROCESS: usize = 16;
/// Most closes of all processes that have not ended while anyone may still send files.
const MOST_OF_ALL: usize = 256;
/// Time between two looks at a file that other threads have.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What clients have sent. They decide how long closing it lasts.
static OF_CLIENTS: Queue = Queue::new(16, 2);
/// The switch's own files. They do not wait for those of clients: otherwise one client could keep all of them open.
static OWN: Queue = Queue::new(1, 1);

/// Ends of pipes, whose last frames are moved first, in steps. Each touches memory of clients.
static PIPES: Queue = Queue::new(8, 2);
/// Most ends of pipes of one process whose close has not ended while it may still open others.
const MOST_PIPES_OF_PROCESS: usize = 64;

/// One step of a close. Returns true if it was the last one.
type Step = Box<dyn FnMut() -> bool + Send>;

/// What waits to be closed.
enum Closing {
    Files(Vec<OwnedFd>),
    Socket(OwnedFd),
    Shared(Arc<OwnedFd>),
    Steps(Step),
}

impl Closing {
    /// Closes it, or makes one step. Returns what is left.
    fn close(self) -> Option<Closing> {
        let socket = match self {
            Self::Files(files) => {
                drop(files);
                return None;
            }
            Self::Steps(mut step) => return if step() { None } else { Some(Self::Steps(step)) },
            Self::Shared(file) => {
                // The others only borrow it for the time of a call.
                while Arc::strong_count(&file) > 1 {
                    std::thread::sleep(LOOK_EVERY);
                }
                return None;
            }
            Self::Socket(socket) => socket,
        };
        // The kernel lets a peer forget what it has not read (ECONNRESET) when a socket is closed before all is read of it.
        let mut message = [0; 16];
        loop {
            let mut files = Vec::new();
            // SAFETY: `message` is a local array, and nothing else refers to it.
            let received = unsafe { receive(&socket, message.as_mut_ptr(), message.len(), &mut files) };
            if !received.is_ok_and(|len| len > 0) {
                return None;
            }
        }
    }
}

/// What waits to be closed, and the threads that close it.
struct Queue {
    most_threads: usize,
    /// Most threads that close what one process has sent.
    most_of_process: usize,
    state: Mutex<State>,
    /// Wakes the thread that stays.
    more: Condvar,
}

struct State {
    waiting: Vec<(Process, Closing)>,
    /// By thread: the process whose files it closes.
    busy: Vec<Process>,
    threads: usize,
    /// One of the threads stays when nothing is left to close.
    has_staying: bool,
    /// That thread has nothing to do.
    is_idle: bool,
}

impl State {
    /// Returns the oldest close that may begin.
    fn next(&self, most_of_process: usize) -> Option<usize> {
        let busy = |process| self.busy.iter().filter(|other| **other == process).count();
        self.waiting.iter().position(|(process, _)| busy(*process) < most_of_process)
    }
}

impl Queue {
    const fn new(most_threads: usize, most_of_process: usize) -> Self {
        let state = State { waiting: Vec::new(), busy: Vec::new(), threads: 0, has_staying: false, is_idle: false };
        Self { most_threads, most_of_process, state: Mutex::new(state), more: Condvar::new() }
    }

    fn push(&'static self, process: Process, what: Closing) {
        let mut state = self.state.lock();
        state.waiting.push((process, what));
        self.start_thread(&mut state);
    }

    /// Starts a thread, or wakes the one that stays, if one more has something to do. If none can be started, the next one that
    /// looks finds it.
    fn start_thread(&'static self, state: &mut State) {
        if state.next(self.most_of_process).is_none() {
            return;
        }
        if state.is_idle {
            state.is_idle = false;
            self.more.notify_one();
        } else if state.threads < self.most_threads {
            let _ = self.spawn(state, false);
        }
    }

    fn spawn(&'static self, state: &mut State, stays: bool) -> io::Result<()> {
        std::thread::Builder::new().name("closing".into()).spawn(move || self.run(stays))?;
        state.threads += 1;
        Ok(())
    }

    /// Starts the thread that stays, unless there is one: later closes then need no further thread.
    ///
    /// # Errors
    /// The kernel has no threads left.
    fn keep_thread(&'static self) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.has_staying {
            self.spawn(&mut state, true)?;
            state.has_staying = true;
        }
        Ok(())
    }

    fn run(&'static self, stays: bool) {
        guard_thread();
        let mut state = self.state.lock();
        loop {
            let Some(next) = state.next(self.most_of_process) else {
                if !stays {
                    break;
                }
                state.is_idle = true;
                self.more.wait(&mut state);
                state.is_idle = false;
                continue;
            };
            let (process, what) = state.waiting.remove(next);
            state.busy.push(process);
            self.start_thread(&mut state);
            drop(state);
            let left = contain(|| what.close()).unwrap_or_else(|place| {
                warn_limited(&format!("a defect of Ringway, please report it: a close failed at {place}"));
                None
            });
            state = self.state.lock();
            if let Some(at) = state.busy.iter().position(|other| *other == process) {
                state.busy.swap_remove(at);
            }
            // The others come first.
            state.waiting.extend(left.map(|left| (process, left)));
        }
        state.threads -= 1;
    }

    /// Returns how many closes have not ended, of a process and of all.
    fn count(&self, process: Process) -> (usize, usize) {
        let state = self.state.lock();
        let all = state.waiting.iter().map(|(other, _)| other).chain(&state.busy);
        (all.filter(|other| **other == process).count(), state.waiting.len() + state.busy.len())
    }
}

/// Closes files that a process has sent on a separate thread that serves no port.
pub(crate) fn close_in_background(sender: Process, files: Vec<OwnedFd>) {
    if !files.is_empty() {
        OF_CLIENTS.push(sender, Closing::Files(files));
    }
}

/// Closes a file of the switch on a separate thread, when no other thread has it any more: none of them closes it.
pub(crate) fn close_when_unshared(file: Arc<OwnedFd>) {
    OWN.push(None, Closing::Shared(file));
}

/// Makes sure that there is a thread for [`close_in_steps`].
///
/// # Errors
/// The kernel has no threads left.
pub(crate) fn prepare_steps() -> io::Result<()> {
    PIPES.keep_thread()
}

/// Closes an end of a pipe of this process on a separate thread. `step` is called, between those of other ends, until it returns true.
pub(crate) fn close_in_steps(process: Process, step: impl FnMut() -> bool + Send + 'static) {
    PIPES.push(process, Closing::Steps(Box::new(step)));
}

/// Returns true if no end of a pipe is being closed.
pub fn pipes_are_closed() -> bool {
    PIPES.count(None).1 == 0
}

/// Returns true if a process may not open another pipe, by the ends that it has closed and that have not left.
pub fn has_unclosed_pipes(process: Process) -> bool {
    PIPES.count(process).0 >= MOST_PIPES_OF_PROCESS
}

/// Closes a process's connection on a separate thread, after what the peer has sent. The peer can still read what was sent to
/// it.
pub(crate) fn close_socket_in_background(peer: Process, socket: OwnedFd) {
    // From now on the peer can send no more.
    let _ = shutdown(&socket, Shutdown::Both);
    OF_CLIENTS.push(peer, Closing::Socket(socket));
}

/// Checks that a process may send a file, by the closes that have not ended.
///
/// # Errors
/// Too many have not ended. The text is for the process.
pub(crate) fn check_unclosed(process: Process) -> Result<(), String> {
    match OF_CLIENTS.count(process) {
        (own, _) if own >= MOST_OF_PROCESS => Err(format!(
            "{own} connections or files of this process are still being closed: a close waits for a peer (SO_LINGER) or a file system"
        )),
        (_, all) if all >= MOST_OF_ALL => {
            Err(format!("{all} connections or files of earlier clients are still being closed: try again later"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::front_end::testing::{lingering, send_files};

    /// A queue of a test.
    fn queue(most_threads: usize, most_of_process: usize) -> &'static Queue {
        Box::leak(Box::new(Queue::new(most_threads, most_of_process)))
    }

    /// A pipe that reads the end when its other end is closed.
    fn pipe() -> (OwnedFd, OwnedFd) {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&read, true).expect("non-blocking");
        (read, write)
    }

    fn is_closed(read: &OwnedFd) -> bool {
        rustix::io::read(read, &mut [0; 1]) == Ok(0)
    }

    fn until_idle(queue: &Queue) {
        ringway_testing::until("all threads have ended", || queue.state.lock().threads == 0);
    }

    #[test]
    fn what_was_sent_to_a_peer_can_be_read_after_its_connection_was_closed_with_files_in_it() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let (near, far) = socketpair(kind.0, kind.1, kind.2, None).expect("sockets");
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        for _ in 0..3 {
            assert_eq!(send_files(&far, b"abc", vec![write.try_clone().expect("a descriptor")]), Ok(3));
        }
        drop(write);
        assert_eq!(send_files(&near, b"reason", Vec::new()), Ok(6));
        close_socket_in_background(None, near);
        assert!(is_closed(&read), "all copies are closed");
        let mut bytes = [0; 16];
        assert_eq!(rustix::io::read(&far, &mut bytes), Ok(6), "the reason");
        assert_eq!(rustix::io::read(&far, &mut bytes), Ok(0), "the end");
    }

    #[test]
    fn closing_what_lasts_holds_up_no_other_process_and_not_the_caller() {
        let queue = queue(4, 2);
        let process = |number| NonZeroU32::new(number);
        let (files, peers): (Vec<_>, Vec<_>) = (0..6).map(|_| lingering()).unzip();
        // One process's closes all last. They occupy two threads.
        files.into_iter().for_each(|file| queue.push(process(1), Closing::Files(vec![file])));
        for _ in 0..10 {
            let (read, write) = pipe();
            queue.push(process(2), Closing::Files(vec![write]));
            ringway_testing::until("the file of another process is closed", || is_closed(&read));
        }
        assert_eq!(queue.count(process(1)), (6, 6));
        // These lines are reached although no close of the first process has returned yet. The peers go now.
        drop(peers);
        until_idle(queue);
        assert_eq!(queue.count(process(1)), (0, 0));
    }

    #[test]
    fn a_close_that_becomes_possible_begins_while_another_one_lasts() {
        let queue = queue(3, 1);
        let process = |number| NonZeroU32::new(number);
        let (first, first_peer) = lingering();
        let (other, other_peer) = lingering();
        let (read, write) = pipe();
        queue.push(process(1), Closing::Files(vec![first]));
        ringway_testing::until("the first close lasts", || queue.state.lock().busy.len() == 1);
        // The thread of the first one takes the other's next, and has to start another one for its own process's.
        {
            let mut state = queue.state.lock();
            state.waiting.push((process(2), Closing::Files(vec![other])));
            state.waiting.push((process(1), Closing::Files(vec![write])));
        }
        drop(first_peer);
        ringway_testing::until("the second file of the first process is closed", || is_closed(&read));
        drop(other_peer);
        until_idle(queue);
    }

    #[test]
    fn a_close_of_many_steps_lets_others_end_between_them() {
        let queue = queue(1, 1);
        let (other_is_done, is_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let there = Arc::clone(&other_is_done);
        queue.push(NonZeroU32::new(1), Closing::Steps(Box::new(move || there.load(Ordering::SeqCst))));
        let (there, all) = (Arc::clone(&other_is_done), Arc::clone(&is_done));
        queue.push(NonZeroU32::new(2), Closing::Steps(Box::new(move || !there.swap(true, Ordering::SeqCst))));
        until_idle(queue);
        queue.push(NonZeroU32::new(1), Closing::Steps(Box::new(move || !all.swap(true, Ordering::SeqCst))));
        until_idle(queue);
        assert!(other_is_done.load(Ordering::SeqCst) && is_done.load(Ordering::SeqCst));
    }

    #[test]
    fn a_close_that_panics_costs_no_other_one_its_thread() {
        let queue = queue(1, 1);
        let process = NonZeroU32::new(1);
        let (read, write) = pipe();
        queue.push(process, Closing::Steps(Box::new(|| panic!("injected"))));
        queue.push(process, Closing::Files(vec![write]));
        until_idle(queue);
        assert!(is_closed(&read));
        assert_eq!(queue.count(process), (0, 0));
    }

    #[test]
    fn a_thread_that_stays_closes_where_no_further_thread_can_be_started() {
        let queue = queue(0, 1);
        let (first, write) = pipe();
        queue.push(None, Closing::Files(vec![write]));
        assert!(!is_closed(&first), "there is no thread");
        queue.keep_thread().expect("a thread");
        ringway_testing::until("it closes what waited", || is_closed(&first));
        for _ in 0..10 {
            let (read, write) = pipe();
            queue.push(None, Closing::Files(vec![write]));
            ringway_testing::until("it closes what comes", || is_closed(&read));
        }
    }

    #[test]
    fn a_process_for_which_too_many_closes_wait_sends_no_more_files() {
        let process = NonZeroU32::new(u32::MAX);
        let (files, peers): (Vec<_>, Vec<_>) = (0..MOST_OF_PROCESS).map(|_| lingering()).unzip();
        for file in files {
            assert_eq!(check_unclosed(process), Ok(()));
            close_in_background(process, vec![file]);
        }
        let refused = check_unclosed(process).expect_err("too many");
        assert!(refused.contains("16 connections or files of this process"), "{refused}");
        assert_eq!(check_unclosed(NonZeroU32::new(u32::MAX - 1)), Ok(()));
        drop(peers);
        ringway_testing::until("the process may send again", || check_unclosed(process).is_ok());
    }

    #[test]
    fn the_switchs_own_files_do_not_wait_for_files_of_clients() {
        let (files, peers): (Vec<_>, Vec<_>) = (0..20).map(|_| lingering()).unzip();
        for (file, process) in files.into_iter().zip(1 << 30..) {
            close_in_background(NonZeroU32::new(process), vec![file]);
        }
        let (read, own) = pipe();
        close_when_unshared(Arc::new(own));
        ringway_testing::until("the switch's own file is closed", || match rustix::io::read(&read, &mut [0; 1]) {
            Ok(count) => count == 0,
            Err(error) => error != Errno::AGAIN,
        });
        drop(peers);
    }
}
