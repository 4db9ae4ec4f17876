//! The switch's side: starts the closer, gives it copies, asks it to receive, and tells it what the switch has closed.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ringway_runtime::warn_limited;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, shutdown};

use super::message::{MOST_FILES, Message, Taking, receive, send};
use super::starting::{Closer, start_process, start_thread};
use crate::front_end::closing::{Process, close_in_background};

/// Longest wait for the keeper when a socket is opened. Other threads have it for less, unless the closer is stuck.
const FREE_WITHIN: Duration = Duration::from_millis(10);
/// Longest wait for room in the closer's socket. A closer that reads nothing for so long is replaced.
const READS_WITHIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Longest wait for the closer's answer that it has a copy. It waits for nothing but its processor.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// A close that has not ended after this time waits for its client.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// Most closes of one client that wait for it, and most that have not ended yet.
const MOST_LATE_OF_OWNER: usize = 16;
const MOST_OF_OWNER: usize = 256;
/// Most closes of one client that have not ended while it may still get ports, if some wait for it, and if none does.
const MOST_OF_PORTS: usize = 1024;
const MOST_SOON_OF_PORTS: usize = 8192;
/// Most closes of all clients that have not ended while a client with one among them may send files and get ports.
const MOST_OF_ALL: usize = 16_384;
/// Longest wait for the closer when the switch ends.
const ENDS_WITHIN: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A closer that ends earlier counts as a failed start.
const LIVES_FOR: Duration = Duration::from_secs(1);
/// After so many failed starts, one after the other, the closer is a thread of the switch.
const MOST_FAILED_STARTS: u32 = 5;

/// Makes the command that runs the closer. Its standard input and output are set later.
type Program = Box<dyn Fn() -> Command + Send>;
/// A file, and the closer's copy of it.
type WithCopy = (OwnedFd, Copy);
/// What is done with the files that the closer has received, if it could.
type Then = Box<dyn FnOnce(Option<Vec<WithCopy>>) + Send>;

static KEEPER: OnceLock<Arc<Mutex<Keeper>>> = OnceLock::new();
/// The closer has answered for a copy.
static ANSWERED: Condvar = Condvar::new();
/// A close has ended, or counts no more.
static CLOSED: Condvar = Condvar::new();
/// A closer had no descriptors left.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

struct Keeper {
    program: Option<Program>,
    socket: Arc<OwnedFd>,
    /// The number of closers before this one.
    generation: u64,
    since: Instant,
    failed_starts: u32,
    /// What the closer has, or is given, copies of.
    held: HashMap<u64, Held>,
    /// Descriptors of files that a closer which was started later does not have. A thread closes them last.
    missing: HashMap<u64, OwnedFd>,
    /// Requests to receive, by the number of their first file.
    takes: HashMap<u64, (Process, Then)>,
    /// What is done for requests that a replaced closer had, by the thread that listens.
    failed: Vec<Then>,
    /// Closes that have not ended.
    unclosed: HashMap<u64, Unclosed>,
    /// Closers that may not have ended.
    children: Vec<Closer>,
    /// The switch ends, and the closer had nothing left.
    has_ended: bool,
}

/// A file of the switch.
struct Held {
    file: RawFd,
    owner: Process,
    copy: Answer,
    /// The keeper of the switch has a copy, too.
    outlives: bool,
}

/// What has become of the closer's copy of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The closer has not answered yet. The file is in a message to it, which is a reference like a copy, and ends in the closer.
    Asked,
    There,
    Missing,
}

/// A close that has not ended.
struct Unclosed {
    owner: Process,
    since: Instant,
    /// When the closer has begun it.
    begun: Option<Instant>,
}

/// The closer's copy of a file.
#[derive(Debug)]
pub struct Copy {
    id: u64,
    pub(super) owner: Process,
}

impl Copy {
    /// The switch is about to close its descriptor.
    pub(super) fn forget(&self) {
        keeper().lock().forget(self.id);
    }

    /// The keeper of the switch has a copy, too, for a successor: the closer leaves the file as it is when the switch has ended.
    pub(super) fn outlives(&self) {
        let mut keeper = keeper().lock();
        let Some(held) = keeper.held.get_mut(&self.id) else { return };
        held.outlives = true;
        // A closer that has ended meanwhile is replaced, and its successor is told with the copy.
        let _ = keeper.tell(Message::Outlives { id: self.id }, &[]);
    }

    /// Returns false if a closer that was started later does not have it.
    pub(super) fn is_there(&self) -> bool {
        let keeper = keeper().lock();
        keeper.held.get(&self.id).is_some_and(|held| held.copy != Answer::Missing)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let mut keeper = keeper().lock();
        keeper.forget(self.id);
        if let Some(last) = keeper.missing.remove(&self.id) {
            return close_in_background(self.owner, vec![last]);
        }
        let unclosed = Unclosed { owner: self.owner, since: Instant::now(), begun: None };
        keeper.unclosed.insert(self.id, unclosed);
        // A new closer has no copy.
        if !keeper.tell(Message::Close { id: self.id }, &[]).is_ok_and(|is_same| is_same) {
            keeper.unclosed.remove(&self.id);
        }
    }
}

/// Starts the closer, before the switch has clients. `program`: makes the command of a process that calls [`run`](super::run).
pub fn start(program: impl Fn() -> Command + Send + 'static) {
    let mut keeper = keeper().lock();
    keeper.program = Some(Box::new(program));
    keeper.replace();
    keeper.failed_starts = 0;
}

/// Ends the closer if it has nothing left, so that nothing is left behind. Otherwise it ends after the switch, when it can. To be called
/// when there are no clients any more.
pub fn end() {
    let Some(keeper) = KEEPER.get() else { return };
    let until = Instant::now() + ENDS_WITHIN;
    loop {
        let mut keeper = keeper.lock();
        if keeper.held.is_empty() && keeper.takes.is_empty() && keeper.unclosed.is_empty() {
            keeper.has_ended = true;
            for mut child in keeper.children.drain(..) {
                let is_killed = child.kill();
                while is_killed && !child.has_ended() && Instant::now() < until {
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
        if keeper.has_ended || Instant::now() >= until {
            return;
        }
        drop(keeper);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns a number for a client that is no process, to count its closes by.
pub fn new_owner() -> Process {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes have smaller numbers (PID_MAX_LIMIT).
    NonZeroU32::new(1 << 31 | NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Checks that a client may get another port, by its closes that have not ended.
///
/// # Errors
/// Too many have not. The text is for the client.
pub fn check_unclosed_ports(owner: Process) -> Result<(), String> {
    let keeper = keeper().lock();
    let most = if keeper.count(owner).0 > 0 { MOST_OF_PORTS } else { MOST_SOON_OF_PORTS };
    keeper.check_unclosed(owner, MOST_OF_PORTS, most)
}

/// Checks that a client may send further files, by its closes that have not ended.
///
/// # Errors
/// Too many have not. The text is for the client.
pub fn check_unclosed(owner: Process) -> Result<(), String> {
    keeper().lock().check_unclosed(owner, MOST_LATE_OF_OWNER, MOST_OF_OWNER)
}

/// Returns how many closes of a client wait for it, and how many descriptors of it are not closed.
pub(super) fn count_unclosed(owner: Process) -> (usize, usize) {
    let keeper = keeper().lock();
    let (late, unclosed) = keeper.count(owner);
    (late, unclosed + keeper.held.values().filter(|held| held.owner == owner).count())
}

/// Gives the closer a copy if it is free, and does not wait until it has it: the message to it is a reference like a copy. Replaces no closer.
///
/// # Errors
/// Another thread talks to the closer, or its socket has no room.
pub(super) fn ask(file: BorrowedFd<'_>, owner: Process, outlives: bool) -> io::Result<Copy> {
    let mut keeper = keeper().try_lock_for(FREE_WITHIN).ok_or(Errno::AGAIN)?;
    let id = keeper.ask_once(file, owner, outlives)?;
    Ok(Copy { id, owner })
}

/// Gives the closer a copy, and waits until it has it.
///
/// # Errors
/// It cannot have it now.
pub(super) fn hold(file: BorrowedFd<'_>, owner: Process, outlives: bool) -> io::Result<Copy> {
    let until = Instant::now() + ANSWERS_WITHIN;
    let mut keeper = keeper().lock();
    let generation = keeper.generation;
    let id = keeper.ask(&[file], owner, outlives)?;
    // Dropped without the lock, which it needs.
    let copy = Copy { id, owner };
    loop {
        let is_late = Instant::now() >= until;
        match keeper.held.get(&id).map(|held| held.copy) {
            Some(Answer::There) => return Ok(copy),
            Some(Answer::Asked) if !is_late => drop(ANSWERED.wait_until(&mut keeper, until)),
            at => {
                let error = if at == Some(Answer::Asked) { Errno::TIMEDOUT } else { Errno::MFILE };
                if error == Errno::TIMEDOUT && keeper.generation == generation {
                    // Otherwise each client would wait as long in vain.
                    keeper.replace_as("does not answer");
                }
                drop(keeper);
                drop(copy);
                return Err(error.into());
            }
        }
    }
}

/// Gives the closer copies of at most [`MOST_FILES`] files that the keeper of the switch has, too, and does not wait until it has them: the message to
/// it is a reference like a copy. A successor with hundreds of ports would else wait for the answers to each.
///
/// # Errors
/// It cannot have them now.
pub(super) fn hold_left(files: &[BorrowedFd<'_>], owner: Process, outlives: bool) -> io::Result<Vec<Copy>> {
    if IS_SHORT.load(Ordering::Relaxed) {
        // It may not get them.
        return files.iter().map(|file| hold(*file, owner, outlives)).collect();
    }
    let until = Instant::now() + ANSWERS_WITHIN;
    loop {
        let asked = keeper().lock().ask(files, owner, outlives);
        match asked {
            // So many files may be in messages of one user. The closer takes them out.
            Err(Errno::TOOMANYREFS) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            Err(why) => return Err(why.into()),
            Ok(first) => return Ok((first..).take(files.len()).map(|id| Copy { id, owner }).collect()),
        }
    }
}

/// Waits while many closes of a client have not ended, and none of them waits for the client: the closer has no processor, or is busy with others.
/// For threads that serve this client alone.
pub(super) fn wait_for_closes(owner: Process) {
    let until = Instant::now() + ANSWERS_WITHIN;
    let mut keeper = keeper().lock();
    loop {
        let (late, own) = keeper.count(owner);
        if late > 0 || own < MOST_OF_OWNER / 2 || Instant::now() >= until {
            return;
        }
        // Also looks whether one is late meanwhile.
        CLOSED.wait_until(&mut keeper, until.min(Instant::now() + CLOSES_WITHIN));
    }
}

/// Has the closer receive `bytes` bytes from a connection of which it has a copy, with the files that came with them. Calls `then` with
/// the files, on another thread or at once: with none if they could not be received.
pub(super) fn take(copy: &Copy, bytes: usize, how: Taking, then: impl FnOnce(Option<Vec<WithCopy>>) + Send + 'static) {
    let first = NEXT_ID.fetch_add(MOST_FILES as u64, Ordering::Relaxed);
    let mut keeper = keeper().lock();
    if keeper.check_own(copy.owner, MOST_LATE_OF_OWNER, MOST_OF_OWNER).is_err() {
        drop(keeper);
        return then(None);
    }
    keeper.takes.insert(first, (copy.owner, Box::new(then)));
    let message = Message::Take { connection: copy.id, first, bytes: bytes as u64, how };
    if keeper.tell(message, &[]).is_ok_and(|is_same| is_same) {
        return;
    }
    let take = keeper.takes.remove(&first);
    drop(keeper);
    if let Some((_, then)) = take {
        then(None);
    }
}

fn keeper() -> &'static Arc<Mutex<Keeper>> {
    KEEPER.get_or_init(|| {
        let keeper = Arc::new(Mutex::new(Keeper::new(start_thread())));
        let listens = Arc::clone(&keeper);
        let _ = std::thread::Builder::new().name("closer".into()).spawn(move || listen(&listens));
        keeper
    })
}

impl Keeper {
    fn new(socket: Arc<OwnedFd>) -> Self {
        Self {
            program: None,
            socket,
            generation: 0,
            since: Instant::now(),
            failed_starts: 0,
            held: HashMap::new(),
            missing: HashMap::new(),
            takes: HashMap::new(),
            failed: Vec::new(),
            unclosed: HashMap::new(),
            children: Vec::new(),
            has_ended: false,
        }
    }

    /// Gives the closer copies of files. Returns the number of the first of them.
    ///
    /// # Errors
    /// The kernel refuses to send the message.
    fn ask(&mut self, files: &[BorrowedFd<'_>], owner: Process, outlives: bool) -> Result<u64, Errno> {
        let id = NEXT_ID.fetch_add(files.len() as u64, Ordering::Relaxed);
        self.tell(Message::Hold { id, files: files.len() as u32, owner, outlives }, files)?;
        let asked = |file: &BorrowedFd<'_>| Held { file: file.as_raw_fd(), owner, copy: Answer::Asked, outlives };
        self.held.extend((id..).zip(files.iter().map(asked)));
        Ok(id)
    }

    /// The same without a wait, also for another closer.
    fn ask_once(&mut self, file: BorrowedFd<'_>, owner: Process, outlives: bool) -> Result<u64, Errno> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        send(&self.socket, Message::Hold { id, files: 1, owner, outlives }, &[file], SendFlags::DONTWAIT)?;
        self.held.insert(id, Held { file: file.as_raw_fd(), owner, copy: Answer::Asked, outlives });
        Ok(id)
    }

    fn forget(&mut self, id: u64) {
        self.held.remove(&id);
    }

    /// The closer does not have a copy of a file of the switch.
    fn lose(&mut self, id: u64) {
        let Some(held) = self.held.get_mut(&id) else { return };
        held.copy = Answer::Missing;
        // SAFETY: a file leaves `held`, under the lock of the keeper, before it is closed.
        let file = unsafe { BorrowedFd::borrow_raw(held.file) };
        if let Ok(last) = rustix::io::fcntl_dupfd_cloexec(file, 3) {
            self.missing.insert(id, last);
        }
    }

    /// Returns how many closes of a client wait for it, and how many have not ended.
    fn count(&self, owner: Process) -> (usize, usize) {
        let is_late = |since: Instant| since.elapsed() > CLOSES_WITHIN;
        let own = || self.unclosed.values().filter(|close| close.owner == owner);
        // All wait for the client behind one that does. Otherwise they wait for a thread of the closer.
        let does_wait = own().any(|close| close.begun.is_some_and(is_late));
        let late = own().filter(|close| does_wait && is_late(close.since)).count();
        (late, own().count())
    }

    /// Like `check_own`, and a client with closes of its own waits while all clients have too many.
    fn check_unclosed(&self, owner: Process, most_late: usize, most: usize) -> Result<(), String> {
        self.check_own(owner, most_late, most)?;
        let all = self.unclosed.len();
        if all >= MOST_OF_ALL && self.count(owner).1 > 0 {
            return Err(format!("{all} descriptors of earlier clients are still being closed"));
        }
        Ok(())
    }

    /// `most_late`: of those that wait for the client; `most`: of all its closes.
    fn check_own(&self, owner: Process, most_late: usize, most: usize) -> Result<(), String> {
        let (late, own) = self.count(owner);
        // The closer has a thread and a connection for each file that it receives.
        let own = own + self.takes.values().filter(|(other, _)| *other == owner).count();
        if late >= most_late || own >= most {
            return Err(format!(
                "{own} descriptors of this client are still being closed: a close waits for a watcher (epoll), a peer (SO_LINGER) or a \
                 file system"
            ));
        }
        Ok(())
    }

    /// Tells the closer, and replaces a closer that has ended or reads nothing. Returns true if the closer is still the same. A new one
    /// gets to know a new file; it knows nothing of what was asked of the old one.
    ///
    /// # Errors
    /// The kernel refuses to send the message.
    fn tell(&mut self, message: Message, files: &[BorrowedFd<'_>]) -> Result<bool, Errno> {
        match self.try_to_tell(message, files) {
            Err(error @ (Errno::AGAIN | Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)) => {
                self.replace_as(if error == Errno::AGAIN { "reads nothing" } else { "has ended" });
                if matches!(message, Message::Hold { .. }) {
                    self.try_to_tell(message, files)?;
                }
                Ok(false)
            }
            result => result.map(|()| true),
        }
    }

    fn try_to_tell(&self, message: Message, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        loop {
            match send(&self.socket, message, files, SendFlags::DONTWAIT) {
                Err(Errno::AGAIN) => {}
                result => return result,
            }
            let mut fds = [PollFd::new(&*self.socket, PollFlags::OUT)];
            match poll(&mut fds, Some(&READS_WITHIN)) {
                Ok(0) => return Err(Errno::AGAIN),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts another closer, and says why.
    fn replace_as(&mut self, why: &str) {
        if !self.has_ended {
            warn_limited(&format!("the closer {why}: another one is started"));
        }
        self.replace();
    }

    /// Starts another closer, and gives it copies of all that the switch has.
    fn replace(&mut self) {
        self.failed_starts = if self.since.elapsed() < LIVES_FOR { self.failed_starts.saturating_add(1) } else { 0 };
        if self.failed_starts >= MOST_FAILED_STARTS {
            self.program = None;
        }
        // Ends the threads that wait for the old one.
        let _ = shutdown(&*self.socket, Shutdown::Both);
        let mut old = std::mem::take(&mut self.children);
        let program = self.program.as_ref().filter(|_| !self.has_ended);
        let started = program.map(|program| start_process(program(), self.generation == 0));
        self.socket = match started {
            Some(Ok((socket, child))) => {
                self.children.push(child);
                socket
            }
            failed => {
                let why = failed.and_then(Result::err).map_or(String::new(), |error| format!(": {error}"));
                warn_limited(&format!(
                    "the closer is no process of its own{why}: clients can keep the switch from closing files, and from ending"
                ));
                start_thread()
            }
        };
        (self.generation, self.since) = (self.generation + 1, Instant::now());
        self.unclosed.clear();
        CLOSED.notify_all();
        self.give_copies();
        // The old one may be stuck: it ends when it can, and is not waited for.
        old.iter().for_each(|old| _ = old.kill());
        old.retain_mut(|child| !child.has_ended());
        self.children.append(&mut old);
        // Not called here, with the keeper locked: they can need it.
        self.failed.extend(self.takes.drain().map(|(_, (_, then))| then));
    }

    /// Gives a new closer copies of all that the switch has.
    fn give_copies(&mut self) {
        let mut failed = None;
        let ids: Vec<_> = self.held.keys().copied().collect();
        for id in ids {
            let Some(held) = self.held.get_mut(&id) else { continue };
            held.copy = Answer::Asked;
            let message = Message::Hold { id, files: 1, owner: held.owner, outlives: held.outlives };
            // SAFETY: a file leaves `held`, under the lock of the keeper, before it is closed.
            let file = unsafe { BorrowedFd::borrow_raw(held.file) };
            failed = failed.or_else(|| self.try_to_tell(message, &[file]).err());
            match failed {
                Some(_) => self.lose(id),
                // The switch has the file, so that this close is not the last.
                None => drop(self.missing.remove(&id)),
            }
        }
        if let Some(error) = failed {
            warn_limited(&format!("the closer has no copies of some descriptors: {error}"));
        }
        ANSWERED.notify_all();
    }

    /// Has the closer close files that only this process has.
    fn hand_over(&mut self, files: Vec<OwnedFd>) {
        for file in files {
            let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
            if self.tell(Message::Hold { id, files: 1, owner: None, outlives: false }, &[file.as_fd()]).is_err() {
                close_in_background(None, vec![file]);
                continue;
            }
            // The message has a reference.
            drop(file);
            let _ = self.tell(Message::Close { id }, &[]);
        }
    }
}

/// Listens to the closer, and replaces a closer that has ended.
fn listen(keeper: &Mutex<Keeper>) {
    loop {
        let (socket, generation, failed) = {
            let mut keeper = keeper.lock();
            (Arc::clone(&keeper.socket), keeper.generation, std::mem::take(&mut keeper.failed))
        };
        failed.into_iter().for_each(|then| then(None));
        while let Some((message, files)) = receive(&socket) {
            hear(keeper, generation, message, files);
        }
        let mut keeper = keeper.lock();
        if keeper.has_ended {
            return;
        }
        if keeper.generation == generation {
            keeper.replace_as("has ended");
        }
    }
}

/// Takes note of what the closer of this generation says.
fn hear(keeper: &Mutex<Keeper>, generation: u64, message: Message, files: Vec<OwnedFd>) {
    let mut locked = keeper.lock();
    if generation != locked.generation {
        // It was replaced: what it has is nothing to its successor, which has asked for all again. But only it had these files.
        return locked.hand_over(files);
    }
    match message {
        Message::Taken { first, files: count } => {
            let Some((owner, then)) = locked.takes.remove(&first) else {
                return locked.hand_over(files);
            };
            let is_whole = files.len() as u64 == count;
            let mut ids = first..first + count;
            let files: Vec<_> = (&mut ids).zip(files).collect();
            let there = |file: &OwnedFd| Held { file: file.as_raw_fd(), owner, copy: Answer::There, outlives: false };
            locked.held.extend(files.iter().map(|(id, file)| (*id, there(file))));
            // This process has no descriptors left for the others.
            for id in ids {
                let _ = locked.tell(Message::Close { id }, &[]);
            }
            drop(locked);
            let files: Vec<_> = files.into_iter().map(|(id, file)| (file, Copy { id, owner })).collect();
            if is_whole {
                return then(Some(files));
            }
            files.iter().for_each(|(_, copy)| copy.forget());
            drop(files);
            then(None);
        }
        Message::NotTaken { first } => {
            let take = locked.takes.remove(&first);
            drop(locked);
            if let Some((_, then)) = take {
                then(None);
            }
        }
        Message::NotHeld { id } => {
            IS_SHORT.store(true, Ordering::Relaxed);
            warn_limited("the closer has no descriptors left for copies");
            locked.lose(id);
            ANSWERED.notify_all();
        }
        Message::Held { id, files } => {
            for id in id..id.saturating_add(files) {
                if let Some(held) = locked.held.get_mut(&id) {
                    held.copy = Answer::There;
                }
            }
            ANSWERED.notify_all();
        }
        Message::Closing { id } => {
            if let Some(close) = locked.unclosed.get_mut(&id) {
                close.begun = Some(Instant::now());
            }
        }
        Message::Closed { id } => {
            locked.unclosed.remove(&id);
            CLOSED.notify_all();
        }
        // Only the switch says these.
        Message::Switch
        | Message::Hold { .. }
        | Message::Take { .. }
        | Message::Outlives { .. }
        | Message::Close { .. } => {}
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
