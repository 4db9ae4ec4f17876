//! What the keeper holds of a port's connection, so that the connection outlives the switch.
//!
//! A connection has a name, `connection/PATH`, with the socket and the file of the [`Answers`]. What a kind needs to go on is in parts, each
//! with a name of its own behind that one and a space. All parts of a connection have its number in their notes: a part of an earlier connection, whose release was under
//! way when the switch died, does not count.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ringway_keeper::{Guard, Inherited, Link};
use ringway_runtime::warn_limited;
use rustix::time::{ClockId, clock_gettime};

use super::answers::Answers;
use super::closer::new_owner;
use super::connection::Connection;
use super::kept_names::kept_name;

/// The version of the notes. Others are not understood.
const VERSION: u8 = 1;
/// Longest wait for the keeper to close its copies. None of them is the last one, so that it waits for no client.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);
/// Bytes before a kind's own note: the version, and the number of the connection.
const HEAD: usize = 9;

/// What the keeper holds of one connection. Dropping it lets go of all of it, and waits until the keeper has closed it: drop it after the connection, and
/// before other descriptors that a client has, too.
#[derive(Debug)]
pub struct Kept {
    link: Link,
    name: String,
    /// The port, as `SWITCH:PORT`.
    label: String,
    number: u64,
    /// By their names behind that of the connection. The connection itself is the part without a name, and goes first.
    parts: Mutex<BTreeMap<String, Held>>,
}

#[derive(Debug)]
struct Held {
    guard: Guard,
    has_files: bool,
}

/// A part of what a predecessor left.
#[derive(Debug)]
pub struct Part {
    /// The kind's note.
    pub note: Vec<u8>,
    /// The files, in the same order.
    pub files: Vec<OwnedFd>,
}

/// What a predecessor left of a connection, by the names of the parts.
pub type Left = BTreeMap<String, Part>;

/// A connection of a predecessor.
pub(super) struct TakenOver {
    pub(super) kept: Kept,
    pub(super) socket: OwnedFd,
    pub(super) answers: OwnedFd,
    pub(super) left: Left,
}

impl Kept {
    /// Has the keeper hold a connection of the port `label` that was just made, by the socket at `path`. `place`: how it was made. A successor whose port makes
    /// connections otherwise closes this one.
    ///
    /// # Errors
    /// The keeper cannot hold it.
    pub(super) fn new(
        link: &Link,
        (label, path): (&str, &Path),
        place: &str,
        socket: &Connection,
        answers: &Answers,
    ) -> io::Result<Self> {
        let (link, name, label) = (link.clone(), name(path), label.to_owned());
        let kept = Self { link, name, label, number: next_number(), parts: Mutex::default() };
        kept.keep("", place.as_bytes(), &[socket.as_fd(), answers.as_fd()])?;
        socket.outlives();
        Ok(kept)
    }

    /// Has the keeper hold this part instead of what it holds of this name. Returns when it has closed what it held: close descriptors that a
    /// client has, too, afterwards, as the keeper must not be the last one.
    ///
    /// # Errors
    /// The keeper cannot hold it.
    pub fn keep(&self, part: &str, note: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut whole = Vec::with_capacity(note.len().saturating_add(HEAD));
        whole.push(VERSION);
        whole.extend(self.number.to_ne_bytes());
        whole.extend(note);
        let mut parts = self.parts.lock();
        let has_files = !files.is_empty();
        if let Some(held) = parts.get_mut(part).filter(|held| !held.has_files) {
            held.has_files = has_files;
            return held.guard.replace(&whole, files);
        }
        let name = if part.is_empty() { self.name.clone() } else { format!("{} {part}", self.name) };
        // A successor takes the newer one of two.
        let guard = Guard::new(&self.link, &name, &whole, files, Some(CLOSED_WITHIN))?;
        parts.insert(part.to_owned(), Held { guard, has_files });
        Ok(())
    }

    /// Has the keeper close what it holds of this part.
    pub fn release(&self, part: &str) {
        drop(self.parts.lock().remove(part));
    }

    /// The number of the connection, which no other connection has: not 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The port, as `SWITCH:PORT`: where it was when it was opened.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Takes the connection that a predecessor left for the port `label`, whose socket is at `path`, with all its parts. `None`: there is none. All else is let go.
    ///
    /// # Errors
    /// There is one, and it does not fit. The text is for users.
    pub(super) fn take_over(
        link: &Link,
        (label, path): (&str, &Path),
        place: &str,
    ) -> Option<Result<TakenOver, &'static str>> {
        let name = name(path);
        let parts = link.inherit_all(&format!("{name} "));
        let mut whole = link.inherit_all(&format!("{name}#"));
        let Some(newest) = whole.pop() else {
            // Its predecessor died while it let the connection go.
            parts.into_iter().for_each(|part| let_go(link, part));
            return None;
        };
        let all: Vec<_> = parts.into_iter().chain(whole).collect();
        let taken = Self::fit(link, (label, &name), place, newest, &all);
        let (kept, socket, answers) = match taken {
            Ok(taken) => taken,
            Err(why) => {
                all.into_iter().for_each(|other| let_go(link, other));
                return Some(Err(why));
            }
        };
        let mut left = Left::new();
        for part in all {
            let own =
                part.name.strip_prefix(&format!("{name} ")).and_then(|rest| Some(rest.rsplit_once('#')?.0.to_owned()));
            match (own, decode(&part.note)) {
                (Some(own), Some((number, note))) if number == kept.number => {
                    let note = note.to_owned();
                    let guard = Guard::of(link, part.name, Some(CLOSED_WITHIN));
                    kept.parts.lock().insert(own.clone(), Held { guard, has_files: !part.files.is_empty() });
                    left.insert(own, Part { note, files: part.files });
                }
                _ => let_go(link, part),
            }
        }
        Some(Ok(TakenOver { kept, socket, answers, left }))
    }

    fn fit(
        link: &Link,
        (label, name): (&str, &str),
        place: &str,
        newest: Inherited,
        others: &[Inherited],
    ) -> Result<(Self, OwnedFd, OwnedFd), &'static str> {
        let Inherited { name: whole, note, files } = newest;
        let guard = Guard::of(link, whole, Some(CLOSED_WITHIN));
        let [socket, answers] = <[OwnedFd; 2]>::try_from(files).map_err(|_| "a file of it is missing")?;
        let (number, why) = match decode(&note) {
            None => (0, Some("another version of ringway has left it")),
            Some((number, _)) if others.iter().any(|other| decode(&other.note).is_none()) => {
                (number, Some("another version of ringway has left a part of it"))
            }
            Some((number, was_at)) => {
                (number, (was_at != place.as_bytes()).then_some("the port has another socket now"))
            }
        };
        if let Some(why) = why {
            // The closer reads what its peer has sent, and is the last one.
            let socket = Connection::from(socket);
            let _ = socket.accept_files(new_owner());
            drop(socket);
            return Err(why);
        }
        let parts = Mutex::new(BTreeMap::from([(String::new(), Held { guard, has_files: true })]));
        let (link, name, label) = (link.clone(), name.to_owned(), label.to_owned());
        Ok((Self { link, name, label, number, parts }, socket, answers))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The connection first: a successor asks for that.
        while let Some((_, held)) = self.parts.get_mut().pop_first() {
            drop(held);
        }
    }
}

fn name(path: &Path) -> String {
    kept_name("connection", path)
}

/// Says why a connection does not outlive the switch.
pub(super) fn warn_closed(label: &str, why: &str) {
    warn_limited(&format!("port {label}: the connection of the switch before this one is closed: {why}"));
}

fn let_go(link: &Link, left: Inherited) {
    drop(left.files);
    drop(Guard::of(link, left.name, None));
}

/// The number of the connection, and the kind's own note.
fn decode(note: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = note.split_first_chunk::<HEAD>()?;
    let [VERSION, number @ ..] = *head else { return None };
    Some((u64::from_ne_bytes(number), rest))
}

/// A number that no other connection has, of this process or of a predecessor.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = clock_gettime(ClockId::Boottime);
    let now = (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64);
    NEXT.fetch_max(now, Ordering::Relaxed);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
