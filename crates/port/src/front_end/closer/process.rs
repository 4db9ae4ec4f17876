//! The closer's side: keeps copies, receives messages with files, closes.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;
use ringway_runtime::prepare_descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, shutdown};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::message::{ANY_FILES, ENDS_WITH_PARENT, Message, Taking, receive, receive_files, send};
use crate::front_end::closing::{Process, are_closes_done, close_in_closer, take_in_closer};
use crate::front_end::descriptor::is_eventfd;
use crate::guest::check_backing;

/// Longest message of a client that the closer receives for the switch. No protocol has longer ones.
const MOST_BYTES: u64 = 1 << 20;
/// Time between two looks whether all files are closed, when the switch has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Most times that a connection is read before it is closed. A socket buffer of 64 MiB has no more messages.
const MOST_READS: usize = 1 << 16;

/// What the closer has, by number.
type Held = Arc<Mutex<HashMap<u64, (Process, Kept)>>>;

/// A file that the closer has.
#[derive(Clone)]
struct Kept {
    file: Arc<OwnedFd>,
    /// The switch made or accepted it. All other files are a client's.
    is_of_switch: bool,
    /// The keeper has a copy for a successor of the switch.
    outlives: bool,
}

/// Runs the closer in a process of its own. The switch is at the other end of the standard input. `give_up`: what it does without, once it has set itself up.
pub fn run(give_up: impl FnOnce()) {
    detach();
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_some_and(|argument| argument == ENDS_WITH_PARENT) {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // It may have ended before.
        let parent = getppid().map(|parent| parent.as_raw_pid());
        if parent != arguments.next().and_then(|parent| parent.parse().ok()) {
            return;
        }
    }
    give_up();
    if let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3) {
        serve(&Arc::new(socket));
    }
}

/// Lets go of all that a process inherits, and ignores the signals that end the switch: the closer ends after it.
fn detach() {
    let _ = rustix::thread::set_name(c"ringway-closer");
    // SAFETY: nothing in this process has opened a descriptor beyond the standard streams, and ignoring signals runs no code.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    let _ = prepare_descriptors();
}

/// Does what the switch says, until it has ended and everything is closed. This thread never closes a client's file, and never waits for the
/// switch, which may be sending thousands of messages without reading the answers.
pub(super) fn serve(socket: &Arc<OwnedFd>) {
    let (held, mut processes) = (Held::default(), Vec::new());
    let (answers, said) = channel();
    let answering = Arc::clone(socket);
    let started = std::thread::Builder::new().name("answers".into()).spawn(move || answer(&answering, &said));
    if started.is_err() {
        return;
    }
    while let Some((message, files)) = receive(socket) {
        match message {
            Message::Switch => processes = files,
            Message::Hold { id, files: count, owner, outlives } => {
                let there = files.len() as u64;
                let kept = files.into_iter().map(|file| Kept { file: Arc::new(file), is_of_switch: true, outlives });
                held.lock().extend((id..).zip(kept.map(|kept| (owner, kept))));
                let _ = answers.send(Message::Held { id, files: there });
                // No descriptor was left for these.
                for missing in there..u64::from(count) {
                    let _ = answers.send(Message::NotHeld { id: id + missing });
                }
            }
            Message::Outlives { id } => {
                if let Some((_, kept)) = held.lock().get_mut(&id) {
                    kept.outlives = true;
                }
            }
            Message::Take { connection, first, bytes, how } => {
                let Some((owner, from)) = held.lock().get(&connection).cloned() else {
                    let _ = answers.send(Message::NotTaken { first });
                    continue;
                };
                let (socket, held) = (Arc::clone(socket), Arc::clone(&held));
                take_in_closer(owner, move || take(&socket, &held, owner, from.file, Wanted { first, bytes, how }));
            }
            Message::Close { id } => {
                let Some((owner, file)) = held.lock().remove(&id) else {
                    let _ = answers.send(Message::Closed { id });
                    continue;
                };
                let socket = Arc::clone(socket);
                close_in_closer(owner, move || {
                    let _ = send(&socket, Message::Closing { id }, &[], SendFlags::empty());
                    close(file);
                    let _ = send(&socket, Message::Closed { id }, &[], SendFlags::empty());
                });
            }
            // Only the closer says these.
            Message::Taken { .. }
            | Message::NotTaken { .. }
            | Message::Held { .. }
            | Message::NotHeld { .. }
            | Message::Closing { .. }
            | Message::Closed { .. } => {}
        }
    }
    end(&held, &processes);
}

/// Says to the switch what the thread that reads has to say.
fn answer(socket: &OwnedFd, said: &Receiver<Message>) {
    for message in said {
        let _ = send(socket, message, &[], SendFlags::empty());
    }
}

/// Closes everything when the switch has ended. The kernel closes the switch's end of the socket before its other descriptors. What outlives the
/// switch is left as it is: the closer has a copy only. `processes`: the switch and its keeper. The end of the keeper ends the switch, and nothing
/// outlives that.
fn end(held: &Held, processes: &[OwnedFd]) {
    let all = || held.lock().drain().map(|(_, file)| file).collect::<Vec<_>>();
    let [switch, keeper @ ..] = processes else {
        // A thread of the switch: there is another closer now.
        return all().into_iter().for_each(|(owner, file)| close_in_closer(owner, move || drop(file)));
    };
    while poll(&mut [PollFd::new(switch, PollFlags::IN)], None) == Err(Errno::INTR) {}
    let mut all = all();
    let mut keeper: Vec<_> = keeper.iter().map(|keeper| PollFd::new(keeper, PollFlags::IN)).collect();
    if poll(&mut keeper, Some(&Timespec::default())).is_ok_and(|ended| ended > 0) {
        all.iter_mut().for_each(|(_, kept)| kept.outlives = false);
    }
    // Peers wait for the end of their connections, and a close of another client must not hold it up.
    for (_, kept) in all.iter().filter(|(_, kept)| kept.is_of_switch && !kept.outlives) {
        let _ = shutdown(&kept.file, Shutdown::Both);
    }
    for (owner, file) in all {
        close_in_closer(owner, move || close(file));
    }
    while !are_closes_done() {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Closes a file. The peer of a connection can still read what was sent to it: the kernel resets a connection that is closed with
/// unread bytes (net/unix, `unix_release_sock`). The switch has shut the connection down. A client's own socket never ends, and is not read.
fn close(kept: Kept) {
    let mut unread = [0; 4096];
    let mut has_more = || matches!(recv(&*kept.file, &mut unread[..], RecvFlags::DONTWAIT), Ok((_, 1..)));
    let is_last = kept.is_of_switch && !kept.outlives;
    let _ = is_last && (0..MOST_READS).all(|_| has_more());
    drop(kept);
}

/// What the closer has to receive.
struct Wanted {
    /// The number of the first file.
    first: u64,
    bytes: u64,
    how: Taking,
}

/// Receives from a client's connection, and passes on the files that the switch may have.
fn take(socket: &OwnedFd, held: &Held, owner: Process, from: Arc<OwnedFd>, wanted: Wanted) {
    let Wanted { first, bytes, how } = wanted;
    let mut into = vec![0; bytes.min(MOST_BYTES) as usize];
    if let Taking::Discard { files } = how {
        return discard(socket, owner, &from, first, &mut into, files);
    }
    let flags = if how == Taking::Peek { RecvFlags::DONTWAIT | RecvFlags::PEEK } else { RecvFlags::DONTWAIT };
    let received = receive_files(&from, &mut into, flags);
    drop(from);
    let files = received.map_or(Vec::new(), |(_, files)| files);
    let files: Vec<_> = files.into_iter().map(Arc::new).collect();
    let kept = files.iter().map(|file| Kept { file: Arc::clone(file), is_of_switch: false, outlives: false });
    held.lock().extend((first..).zip(kept.map(|kept| (owner, kept))));
    if pass_on(socket, first, &files).is_err() {
        // The switch asks for none of them any more.
        for (id, _) in (first..).zip(&files) {
            let _ = held.lock().remove(&id);
        }
        let _ = send(socket, Message::NotTaken { first }, &[], SendFlags::empty());
    }
}

/// Receives from a client's connection until `into` is full, also if the switch dies meanwhile, and closes the files. Says whether these were so many.
fn discard(socket: &OwnedFd, owner: Process, from: &OwnedFd, first: u64, mut into: &mut [u8], wanted: u32) {
    let mut all = Vec::new();
    while !into.is_empty() {
        match receive_files(from, into, RecvFlags::DONTWAIT) {
            Ok((count @ 1.., files)) => {
                all.extend(files);
                into = into.split_at_mut(count.min(into.len())).1;
            }
            _ => break,
        }
    }
    let is_right = into.is_empty() && (wanted == ANY_FILES || all.len() as u64 == u64::from(wanted));
    let answer = if is_right { Message::Taken { first, files: 0 } } else { Message::NotTaken { first } };
    if !all.is_empty() {
        close_in_closer(owner, move || drop(all));
    }
    let _ = send(socket, answer, &[], SendFlags::empty());
}

/// Gives the switch copies of those files that it may have, and `/dev/null` instead of the others, which it refuses.
fn pass_on(socket: &OwnedFd, first: u64, files: &[Arc<OwnedFd>]) -> Result<(), Errno> {
    let stand_in = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let passed = files.iter().map(|file| if may_have(file) { file.as_fd() } else { stand_in.as_fd() });
    let passed: Vec<BorrowedFd<'_>> = passed.collect();
    send(socket, Message::Taken { first, files: passed.len() as u64 }, &passed, SendFlags::empty())
}

/// Returns true if no close of this file waits for a client while the closer has it, and no other call of the switch.
fn may_have(file: &OwnedFd) -> bool {
    is_eventfd(file).unwrap_or(false) || check_backing(file).is_ok()
}
