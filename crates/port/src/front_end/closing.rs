//! Closing what clients have sent, on threads that serve no port: how long a close lasts is the sender's choice (`files.rs`).
//!
//! One process occupies a few of these threads at most, so that the files of others are closed meanwhile. What waits to be
//! closed is a descriptor of the switch. So a process for which too much of it waits may send no more files, and nobody may
//! while all together have too much.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use ringway_runtime::{contain, guard_thread, warn_limited};
use rustix::net::{Shutdown, shutdown};

use super::files::receive;

/// The number of the process that has sent a file, if it has one in this process's PID namespace.
pub type Process = Option<NonZeroU32>;

/// The processes that a close counts against: the one that sent the file or closed something, and another one whose memory the close
/// touches. Both are the same where only one takes part.
pub type Parties = [Process; 2];

/// Most closes of one process that have not ended while it may still send files.
const MOST_OF_PROCESS: usize = 16;
/// Most closes of all processes that have not ended while anyone may still send files.
const MOST_OF_ALL: usize = 256;
/// Time between two looks at a file that other threads have.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What clients have sent. They decide how long closing it lasts.
static OF_CLIENTS: Queue = Queue::new(16, 2, || true);
/// Registrations of netmap's programs, which touch memory of the program.
static REGISTRATIONS: Queue = Queue::new(16, 2, || true).or_one_each(MOST_WITH_ONE_EACH);
/// Memory that programs had of the regions that they share.
static RETURNS: Queue = Queue::new(8, 2, || true).or_one_each(MOST_WITH_ONE_EACH);
/// Most threads of each of these two.
const MOST_WITH_ONE_EACH: usize = 256;
/// Most returns of one process that have not ended while it may attach, if one of them lasts longer than this time, and if none does.
const MOST_RETURNS_WITH_LATE: usize = 1024;
const MOST_RETURNS: usize = 8192;
const RETURNS_WITHIN: Duration = Duration::from_secs(1);

/// One step of a close. Returns the processes that the next one counts against, or none after the last one.
type Step = Box<dyn FnMut() -> Option<Parties> + Send>;

/// In the closer: what the switch has closed. `closer/` says why.
static IN_CLOSER: Queue = Queue::new(256, 4, || true).or_one_each(MOST_THREADS_OF_CLOSER).lingering(CLOSER_LINGERS);
/// In the closer: what it receives for the switch, which no close holds up.
static TAKES: Queue = Queue::new(64, 2, || true).or_one_each(MOST_THREADS_OF_CLOSER).lingering(CLOSER_LINGERS);
/// Most threads of each of these two.
const MOST_THREADS_OF_CLOSER: usize = 2048;
/// How long a thread of these two waits for more. A client's descriptors come one after the other, and a new thread takes longer than a close.
const CLOSER_LINGERS: Duration = Duration::from_millis(100);

/// What waits to be closed.
enum Closing {
    Files(Vec<OwnedFd>),
    Socket(Box<dyn AsFd + Send>),
    Steps(Step),
}

impl Closing {
    /// Closes it, or makes one step. Returns what is left.
    fn close(self) -> Option<(Parties, Closing)> {
        let socket = match self {
            Self::Files(files) => {
                drop(files);
                return None;
            }
            Self::Steps(mut step) => return step().map(|parties| (parties, Self::Steps(step))),
            Self::Socket(socket) => socket,
        };
        // The kernel lets a peer forget what it has not read (ECONNRESET) when a socket is closed before all is read of it.
        let mut message = [0; 16];
        loop {
            let mut files = Vec::new();
            // SAFETY: `message` is a local array, and nothing else refers to it.
            let received = unsafe { receive(socket.as_fd(), message.as_mut_ptr(), message.len(), &mut files) };
            if !received.is_ok_and(|len| len > 0) {
                return None;
            }
        }
    }
}

/// What waits to be closed, and the threads that close it. No process occupies more than a few of them, so that what it makes last holds up
/// its own closes only.
pub struct Queue {
    most_threads: usize,
    /// Most threads if a process that has none needs one.
    most_with_one_each: usize,
    /// Most threads whose closes count against one process.
    most_of_process: usize,
    /// Prepares a thread. A thread for which this returns false ends.
    prepare: fn() -> bool,
    /// How long a thread with nothing to do waits for more before it ends.
    lingers: Duration,
    state: Mutex<State>,
    /// Wakes a thread with nothing to do.
    more: Condvar,
}

struct State {
    waiting: Vec<(Parties, Closing)>,
    /// By thread: whom its close counts against, and when it began.
    busy: Vec<(Parties, Instant)>,
    threads: usize,
    /// One of the threads stays when nothing is left to close.
    has_staying: bool,
    /// Threads with nothing to do, and how many of them were woken since they looked last.
    idle: usize,
    woken: usize,
}

impl State {
    /// Returns true if a close may begin. `most`: threads of one process.
    fn may_begin(&self, parties: Parties, most: usize) -> bool {
        parties.iter().all(|process| self.busy.iter().filter(|(other, _)| other.contains(process)).count() < most)
    }

    /// Returns the close that begins next: the oldest one of a process that has no thread, or else of one that may have another.
    fn next(&self, most_of_process: usize) -> Option<usize> {
        let mut busy = HashMap::<Process, usize>::new();
        for (parties, _) in &self.busy {
            *busy.entry(parties[0]).or_default() += 1;
            if parties[1] != parties[0] {
                *busy.entry(parties[1]).or_default() += 1;
            }
        }
        let of = |process| busy.get(process).copied().unwrap_or(0);
        let mut best = None;
        for (place, (parties, _)) in self.waiting.iter().enumerate() {
            let busy = parties.iter().map(of).max().unwrap_or(0);
            if busy < best.map_or(most_of_process, |(_, least)| least) {
                best = Some((place, busy));
            }
            if busy == 0 {
                break;
            }
        }
        best.map(|(place, _)| place)
    }
}

impl Queue {
    /// Makes a queue with up to `most_threads` threads. The closes of one process occupy up to `most_of_process` of them. A new thread calls
    /// `prepare` first, and ends if that returns false.
    #[must_use]
    pub const fn new(most_threads: usize, most_of_process: usize, prepare: fn() -> bool) -> Self {
        let state = State { waiting: Vec::new(), busy: Vec::new(), threads: 0, has_staying: false, idle: 0, woken: 0 };
        let state = Mutex::new(state);
        Self {
            most_threads,
            most_with_one_each: most_threads,
            most_of_process,
            prepare,
            lingers: Duration::ZERO,
            state,
            more: Condvar::new(),
        }
    }

    /// Has threads with nothing to do wait for more, for so long.
    const fn lingering(mut self, time: Duration) -> Self {
        self.lingers = time;
        self
    }

    /// Has a thread for each process that has none, also beyond the most threads, up to `most`.
    const fn or_one_each(mut self, most: usize) -> Self {
        self.most_with_one_each = most;
        self
    }

    /// Closes something in steps: `step` is called, between those of other closes, until it returns none. A step that cannot do anything yet
    /// pauses by [`pause_step`].
    pub fn close_in_steps(&'static self, parties: Parties, step: impl FnMut() -> Option<Parties> + Send + 'static) {
        self.push(parties, Closing::Steps(Box::new(step)));
    }

    fn push(&'static self, parties: Parties, what: Closing) {
        let mut state = self.state.lock();
        state.waiting.push((parties, what));
        self.start_thread(&mut state, |state, most| state.may_begin(parties, most));
    }

    /// Returns how many threads one process may have when another close begins.
    fn most_of_process(&self, state: &State) -> usize {
        if state.busy.len() < self.most_threads { self.most_of_process } else { 1 }
    }

    /// Wakes a thread with nothing to do, or starts one, if one more has something to do. If none can be started, the next one that
    /// looks finds it.
    fn start_thread(&'static self, state: &mut State, has_work: impl FnOnce(&State, usize) -> bool) {
        let asleep = state.idle - state.woken;
        // A thread that has not begun anything looks, too, and then calls this.
        let others_look = state.threads > state.busy.len() + asleep;
        let can_start = asleep > 0 || state.threads < self.most_with_one_each;
        if others_look || !can_start || !has_work(state, self.most_of_process(state)) {
            return;
        }
        if asleep > 0 {
            state.woken += 1;
            self.more.notify_one();
            return;
        }
        let _ = self.spawn(state, move || {
            if (self.prepare)() {
                self.run(false);
            } else {
                self.state.lock().threads -= 1;
            }
        });
    }

    fn spawn(&'static self, state: &mut State, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        std::thread::Builder::new().name("closing".into()).spawn(run)?;
        state.threads += 1;
        Ok(())
    }

    /// Starts the thread that stays, unless there is one: later closes then need no further thread. It is prepared.
    ///
    /// # Errors
    /// The kernel has no threads left, or no means for calls, which it was to be prepared for.
    pub fn keep_thread(&'static self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.has_staying {
            return Ok(());
        }
        let (say, hear) = sync_channel(1);
        self.spawn(&mut state, move || {
            let is_prepared = (self.prepare)();
            let _ = say.send(is_prepared);
            if is_prepared {
                self.run(true);
            }
        })?;
        state.has_staying = hear.recv().unwrap_or(false);
        if !state.has_staying {
            state.threads -= 1;
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the kernel has no contexts and timers for calls left",
            ));
        }
        Ok(())
    }

    fn run(&'static self, stays: bool) {
        guard_thread();
        let mut state = self.state.lock();
        loop {
            let Some(next) = state.next(self.most_of_process(&state)) else {
                if self.has_waited_in_vain(&mut state, stays) {
                    break;
                }
                continue;
            };
            let (parties, what) = state.waiting.remove(next);
            let busy = (parties, Instant::now());
            state.busy.push(busy);
            self.start_thread(&mut state, |state, most| state.next(most).is_some());
            drop(state);
            let left = contain(|| what.close()).unwrap_or_else(|place| {
                warn_limited(&format!("a defect of Ringway, please report it: a close failed at {place}"));
                None
            });
            state = self.state.lock();
            if let Some(at) = state.busy.iter().position(|other| *other == busy) {
                state.busy.swap_remove(at);
            }
            // The others come first.
            state.waiting.extend(left);
        }
        state.threads -= 1;
    }

    /// Waits for something to do. Returns true if nothing came in the time that a thread waits.
    fn has_waited_in_vain(&self, state: &mut MutexGuard<'_, State>, stays: bool) -> bool {
        if !stays && self.lingers.is_zero() {
            return true;
        }
        state.idle += 1;
        let is_late = if stays {
            self.more.wait(state);
            false
        } else {
            self.more.wait_for(state, self.lingers).timed_out()
        };
        state.idle -= 1;
        // Another thread may have been woken, or none if this one was late already. Each looks again.
        let is_woken = state.woken > 0;
        state.woken = state.woken.saturating_sub(1);
        is_late && !is_woken
    }

    /// Returns how many closes have not ended, of a process's own and of all.
    #[must_use]
    pub fn count(&self, process: Process) -> (usize, usize) {
        let state = self.state.lock();
        let all = state.waiting.iter().map(|(parties, _)| parties);
        let all = all.chain(state.busy.iter().map(|(parties, _)| parties));
        (all.filter(|parties| parties[0] == process).count(), state.waiting.len() + state.busy.len())
    }

    /// See [`check_returned`].
    fn check_returns(&self, process: Process, now: Instant) -> Result<(), String> {
        let is_late = |(parties, since): &(Parties, Instant)| {
            parties[0] == process && now.saturating_duration_since(*since) > RETURNS_WITHIN
        };
        let most = if self.state.lock().busy.iter().any(is_late) { MOST_RETURNS_WITH_LATE } else { MOST_RETURNS };
        match self.count(process).0 {
            own if own >= most => {
                Err(format!("the memory of {own} ports that this process had is not unmapped yet: try again"))
            }
            _ => Ok(()),
        }
    }
}

/// Closes files that a process has sent on a separate thread that serves no port.
pub fn close_in_background(sender: Process, files: Vec<OwnedFd>) {
    if !files.is_empty() {
        OF_CLIENTS.push([sender; 2], Closing::Files(files));
    }
}

/// Does other work that a client can make last, in steps, on a thread that serves its process alone meanwhile. Each step returns the processes that
/// the next one counts against.
pub fn register_in_steps(parties: Parties, step: impl FnMut() -> Option<Parties> + Send + 'static) {
    REGISTRATIONS.close_in_steps(parties, step);
}

/// Gives back what a client had, on a thread that serves its process alone meanwhile: the client decides how long that lasts.
pub fn return_in_background(parties: Parties, work: impl FnOnce() + Send + 'static) {
    RETURNS.push(parties, once(work));
}

/// Work in one step.
fn once(work: impl FnOnce() + Send + 'static) -> Closing {
    let mut work = Some(work);
    let step = move || {
        if let Some(work) = work.take() {
            work();
        }
        None
    };
    Closing::Steps(Box::new(step))
}

/// Checks that a process may have another port: memory that it had is unmapped.
///
/// # Errors
/// Too much of its memory is not. The text is for the client.
pub fn check_returned(process: Process) -> Result<(), String> {
    RETURNS.check_returns(process, Instant::now())
}

/// Pauses before the step that did nothing is made again.
pub fn pause_step() {
    std::thread::sleep(LOOK_EVERY);
}

/// In the closer: does what can last as long as an owner likes, on a separate thread.
pub(super) fn close_in_closer(owner: Process, close: impl FnOnce() + Send + 'static) {
    IN_CLOSER.push([owner; 2], once(close));
}

/// In the closer: receives for the switch, on a separate thread, as this can last as long as an owner likes, too.
pub(super) fn take_in_closer(owner: Process, take: impl FnOnce() + Send + 'static) {
    TAKES.push([owner; 2], once(take));
}

/// In the closer: returns true if nothing is left to close.
pub(super) fn are_closes_done() -> bool {
    IN_CLOSER.count(None).1 == 0 && TAKES.count(None).1 == 0
}

/// Closes a process's connection on a separate thread, after what the peer has sent. The peer can still read what was sent to
/// it.
pub fn close_socket_in_background(peer: Process, socket: impl AsFd + Send + 'static) {
    // From now on the peer can send no more.
    let _ = shutdown(&socket, Shutdown::Both);
    OF_CLIENTS.push([peer; 2], Closing::Socket(Box::new(socket)));
}

/// Checks that a process may send a file, by the closes that have not ended.
///
/// # Errors
/// Too many have not ended. The text is for the process.
pub fn check_unclosed(process: Process) -> Result<(), String> {
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use ringway_testing::until;

    use super::*;
    use crate::front_end::testing::{lingering, send_files};

    /// A queue of a test.
    fn queue(most_threads: usize, most_of_process: usize) -> &'static Queue {
        Box::leak(Box::new(Queue::new(most_threads, most_of_process, || true)))
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
        until("all threads have ended", || queue.state.lock().threads == 0);
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
        let alone = |number| [process(number); 2];
        let (files, peers): (Vec<_>, Vec<_>) = (0..6).map(|_| lingering()).unzip();
        // One process's closes all last. They occupy two threads.
        files.into_iter().for_each(|file| queue.push(alone(1), Closing::Files(vec![file])));
        for _ in 0..10 {
            let (read, write) = pipe();
            queue.push(alone(2), Closing::Files(vec![write]));
            until("the file of another process is closed", || is_closed(&read));
        }
        // A file is closed a moment before it is not counted any more.
        until("the others are left", || queue.count(process(1)) == (6, 6));
        // These lines are reached although no close of the first process has returned yet. The peers go now.
        drop(peers);
        until_idle(queue);
        assert_eq!(queue.count(process(1)), (0, 0));
    }

    #[test]
    fn the_close_of_a_process_that_has_no_thread_comes_before_older_ones_of_a_process_that_has_one() {
        let alone = |number| [NonZeroU32::new(number); 2];
        let queue = queue(2, 2);
        let mut state = queue.state.lock();
        state.busy.push((alone(1), Instant::now()));
        state.waiting.extend([1, 1, 2, 3].map(|number| (alone(number), Closing::Files(Vec::new()))));
        assert_eq!(state.next(2), Some(2));
    }

    #[test]
    fn a_close_that_becomes_possible_begins_while_another_one_lasts() {
        let queue = queue(3, 1);
        let alone = |number| [NonZeroU32::new(number); 2];
        let (first, first_peer) = lingering();
        let (other, other_peer) = lingering();
        let (read, write) = pipe();
        queue.push(alone(1), Closing::Files(vec![first]));
        until("the first close lasts", || queue.state.lock().busy.len() == 1);
        // The thread of the first one takes the other's next, and has to start another one for its own process's.
        {
            let mut state = queue.state.lock();
            state.waiting.push((alone(2), Closing::Files(vec![other])));
            state.waiting.push((alone(1), Closing::Files(vec![write])));
        }
        drop(first_peer);
        until("the second file of the first process is closed", || is_closed(&read));
        drop(other_peer);
        until_idle(queue);
    }

    #[test]
    fn with_all_threads_busy_a_process_without_one_gets_one_and_no_other_process_another() {
        let queue: &Queue = Box::leak(Box::new(Queue::new(2, 2, || true).or_one_each(4)));
        let alone = |number| [NonZeroU32::new(number); 2];
        let (files, peers): (Vec<_>, Vec<_>) = (0..7).map(|_| lingering()).unzip();
        for (number, (file, process)) in files.into_iter().zip([1, 1, 1, 2, 2, 3, 4]).enumerate() {
            queue.push(alone(process), Closing::Files(vec![file]));
            if number == 1 {
                until("two closes last", || queue.state.lock().busy.len() == 2);
            }
        }
        until("four closes last", || queue.state.lock().busy.len() == 4);
        let mut busy: Vec<_> = queue.state.lock().busy.iter().map(|(parties, _)| *parties).collect();
        busy.sort_unstable();
        assert_eq!(busy, [1, 1, 2, 3].map(alone));
        assert!(queue.state.lock().threads <= 4);
        drop(peers);
        until_idle(queue);
    }

    #[test]
    fn a_close_of_many_steps_lets_others_end_between_them() {
        let queue = queue(1, 1);
        let alone = |number| [NonZeroU32::new(number); 2];
        let unless = |parties: Parties, is_done: bool| (!is_done).then_some(parties);
        let (other_is_done, is_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let there = Arc::clone(&other_is_done);
        queue.push(alone(1), Closing::Steps(Box::new(move || unless(alone(1), there.load(Ordering::SeqCst)))));
        let (there, all) = (Arc::clone(&other_is_done), Arc::clone(&is_done));
        queue.push(alone(2), Closing::Steps(Box::new(move || unless(alone(2), there.swap(true, Ordering::SeqCst)))));
        until_idle(queue);
        queue.push(alone(1), Closing::Steps(Box::new(move || unless(alone(1), all.swap(true, Ordering::SeqCst)))));
        until_idle(queue);
        assert!(other_is_done.load(Ordering::SeqCst) && is_done.load(Ordering::SeqCst));
    }

    #[test]
    fn closes_that_a_process_at_the_other_ends_makes_last_occupy_two_threads() {
        let queue = queue(4, 2);
        let process = |number| NonZeroU32::new(number);
        let ends = Arc::new(AtomicBool::new(false));
        for own in 1..=3 {
            let (parties, ends) = ([process(own), process(9)], Arc::clone(&ends));
            queue.push(
                parties,
                Closing::Steps(Box::new(move || {
                    until("the test ends", || ends.load(Ordering::SeqCst));
                    None
                })),
            );
        }
        until("two of them last", || queue.state.lock().busy.len() >= 2);
        let (read, write) = pipe();
        queue.push([process(4); 2], Closing::Files(vec![write]));
        until("the file of another process is closed", || is_closed(&read));
        let last = queue.state.lock().busy.iter().filter(|(parties, _)| parties.contains(&process(9))).count();
        assert_eq!(last, 2);
        let counts = || (queue.count(process(3)), queue.count(process(9)));
        until("the others are left", || counts() == ((1, 3), (0, 3)));
        ends.store(true, Ordering::SeqCst);
        until_idle(queue);
    }

    #[test]
    fn a_close_whose_other_process_changes_counts_against_the_new_one() {
        let queue = queue(1, 1);
        let (before, after) = ([NonZeroU32::new(1), NonZeroU32::new(2)], [NonZeroU32::new(1), NonZeroU32::new(3)]);
        let (say, hear) = std::sync::mpsc::channel();
        let mut was_made = false;
        queue.push(
            before,
            Closing::Steps(Box::new(move || {
                let _ = say.send(queue.state.lock().busy.iter().map(|(parties, _)| *parties).collect::<Vec<_>>());
                (!std::mem::replace(&mut was_made, true)).then_some(after)
            })),
        );
        until_idle(queue);
        assert_eq!(hear.iter().collect::<Vec<_>>(), [vec![before], vec![after]]);
    }

    #[test]
    fn a_process_attaches_with_8191_returns_that_wait_and_with_1023_behind_one_that_lasts() {
        let queue = queue(2, 1);
        let (process, ends) = (NonZeroU32::new(1), Arc::new(AtomicBool::new(false)));
        let push = || {
            let ends = Arc::clone(&ends);
            queue.push([process; 2], once(move || until("the test ends", || ends.load(Ordering::SeqCst))));
        };
        push();
        until("it lasts", || queue.state.lock().busy.len() == 1);
        let soon = Instant::now();
        let late = soon + RETURNS_WITHIN + Duration::from_millis(1);
        (1..MOST_RETURNS_WITH_LATE - 1).for_each(|_| push());
        assert_eq!(queue.check_returns(process, late), Ok(()));
        push();
        let refused = queue.check_returns(process, late).expect_err("behind one that lasts");
        assert!(refused.starts_with("the memory of 1024 ports"), "{refused}");
        assert_eq!(queue.check_returns(NonZeroU32::new(2), late), Ok(()), "others");
        (MOST_RETURNS_WITH_LATE..MOST_RETURNS - 1).for_each(|_| push());
        assert_eq!(queue.check_returns(process, soon), Ok(()));
        push();
        assert!(queue.check_returns(process, soon).is_err());
        ends.store(true, Ordering::SeqCst);
        until_idle(queue);
    }

    #[test]
    fn registrations_and_returns_of_nine_processes_that_last_hold_up_no_tenth() {
        let ends = Arc::new(AtomicBool::new(false));
        let process = |number| [NonZeroU32::new((1u32 << 31) - number); 2];
        for queue in [&REGISTRATIONS, &RETURNS] {
            for number in (1..=9).flat_map(|number| [number; 2]) {
                let ends = Arc::clone(&ends);
                queue.push(process(number), once(move || until("the test ends", || ends.load(Ordering::SeqCst))));
            }
            let (read, write) = pipe();
            queue.push(process(10), Closing::Files(vec![write]));
            until("that of another process ends", || is_closed(&read));
        }
        ends.store(true, Ordering::SeqCst);
    }

    #[test]
    fn a_close_that_panics_costs_no_other_one_its_thread() {
        let queue = queue(1, 1);
        let process = NonZeroU32::new(1);
        let (read, write) = pipe();
        queue.push([process; 2], Closing::Steps(Box::new(|| panic!("injected"))));
        queue.push([process; 2], Closing::Files(vec![write]));
        until_idle(queue);
        assert!(is_closed(&read));
        assert_eq!(queue.count(process), (0, 0));
    }

    #[test]
    fn a_thread_that_lingers_closes_what_comes_next_and_ends_when_nothing_comes() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let queue = Queue::new(2, 1, || STARTED.fetch_add(1, Ordering::SeqCst) < usize::MAX)
            .lingering(Duration::from_millis(20));
        let queue: &Queue = Box::leak(Box::new(queue));
        // A test without a processor for longer than a thread lingers tries again.
        until("one thread closes one file after the other", || {
            until_idle(queue);
            STARTED.store(0, Ordering::SeqCst);
            for _ in 0..10 {
                let (read, write) = pipe();
                queue.push([None; 2], Closing::Files(vec![write]));
                until("it is closed", || is_closed(&read));
                until("the thread waits", || queue.state.lock().busy.is_empty());
            }
            STARTED.load(Ordering::SeqCst) == 1
        });
        until_idle(queue);
        let state = queue.state.lock();
        assert_eq!((state.idle, state.woken), (0, 0));
    }

    #[test]
    fn what_comes_when_threads_give_up_waiting_is_closed() {
        let queue: &Queue = Box::leak(Box::new(Queue::new(4, 2, || true).lingering(Duration::from_nanos(1))));
        for number in 1..2000 {
            let (read, write) = pipe();
            queue.push([NonZeroU32::new(number % 5 + 1); 2], Closing::Files(vec![write]));
            if number % 3 == 0 {
                until("it is closed", || is_closed(&read));
            }
        }
        until_idle(queue);
        assert_eq!(queue.count(None).1, 0);
    }

    #[test]
    fn a_thread_that_stays_closes_where_no_further_thread_can_be_started() {
        let queue = queue(0, 1);
        let (first, write) = pipe();
        queue.push([None; 2], Closing::Files(vec![write]));
        assert!(!is_closed(&first), "there is no thread");
        queue.keep_thread().expect("a thread");
        until("it closes what waited", || is_closed(&first));
        for _ in 0..10 {
            let (read, write) = pipe();
            queue.push([None; 2], Closing::Files(vec![write]));
            until("it closes what comes", || is_closed(&read));
        }
    }

    #[test]
    fn a_thread_that_cannot_be_prepared_leaves_its_closes_to_the_one_that_stays() {
        static PREPARED: AtomicUsize = AtomicUsize::new(0);
        let queue: &Queue = Box::leak(Box::new(Queue::new(2, 1, || PREPARED.fetch_add(1, Ordering::SeqCst) == 0)));
        queue.keep_thread().expect("a thread");
        until("the thread waits for closes", || queue.state.lock().idle == 1);
        let (first, first_peer) = lingering();
        queue.push([NonZeroU32::new(1); 2], Closing::Files(vec![first]));
        until("the first close lasts", || queue.state.lock().busy.len() == 1);
        let (read, write) = pipe();
        queue.push([NonZeroU32::new(2); 2], Closing::Files(vec![write]));
        until("another thread has come and gone", || {
            PREPARED.load(Ordering::SeqCst) == 2 && queue.state.lock().threads == 1
        });
        assert!(!is_closed(&read), "that thread must not close it");
        drop(first_peer);
        until("the thread that stays closes it", || is_closed(&read));
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
        until("the process may send again", || check_unclosed(process).is_ok());
    }
}
