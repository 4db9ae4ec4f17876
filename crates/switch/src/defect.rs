//! Where Ringway itself failed: panics that were caught.
//!
//! A place is an index into a table of fixed size, so that [`crate::PortFault`] stays a small value and a client that provokes
//! panics cannot make the process remember more and more.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Places that are remembered. There are far fewer defects than that.
const PLACES: usize = 64;
/// Bytes of a message that are remembered.
const MESSAGE_BYTES: usize = 200;

#[derive(Debug, PartialEq, Eq)]
struct Noted {
    file: String,
    line: u32,
    /// Of the first panic there.
    message: String,
}

static NOTED: [OnceLock<Noted>; PLACES] = [const { OnceLock::new() }; PLACES];

/// A line of Ringway's source where a panic began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(u8);

impl Place {
    /// A place that nobody noted.
    pub const UNKNOWN: Place = Place(u8::MAX);

    /// The place of a panic with this message. The first message of a place is kept.
    #[must_use]
    pub fn note(file: &str, line: u32, message: &str) -> Place {
        note_in(&NOTED, file, line, message).map_or(Place::UNKNOWN, |index| Place(index as u8))
    }

    fn noted(self) -> Option<&'static Noted> {
        NOTED.get(usize::from(self.0)).and_then(OnceLock::get)
    }

    /// The source file and line, if they are known.
    #[must_use]
    pub fn file_and_line(self) -> Option<(&'static str, u32)> {
        self.noted().map(|noted| (noted.file.as_str(), noted.line))
    }
}

/// The index of a place in a table; `None`: the table is full of others.
fn note_in(table: &[OnceLock<Noted>], file: &str, line: u32, message: &str) -> Option<usize> {
    let file = printable(file);
    table.iter().position(|place| {
        let noted = place.get_or_init(|| Noted { file: file.clone(), line, message: printable(message) });
        noted.line == line && noted.file == file
    })
}

/// A message may quote what a client sent.
fn printable(text: &str) -> String {
    let mut kept: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = (0..=MESSAGE_BYTES.min(kept.len())).rev().find(|&end| kept.is_char_boundary(end)).unwrap_or(0);
    kept.truncate(end);
    kept
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.noted() {
            Some(Noted { file, line, message }) => write!(f, "{file}:{line} ({message})"),
            None => write!(f, "an unknown place"),
        }
    }
}

/// What Ringway did for a port when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It served the port: took its frames, decided where they go, gave back their memory, or called its client. Nobody but the
    /// port's client chooses what is read then.
    Source,
    /// It gave frames of the port to other ports. What the receiver's client wrote into its memory may be the cause as well.
    Sender,
    /// It gave the port frames that others chose.
    Receiver,
    /// It ran the port's own thread: its client's messages.
    Thread,
}

impl Role {
    /// Whether the port's own client alone can have caused the panic. Where it is false, two clients chose what was read: nobody
    /// knows which of them is hostile.
    #[must_use]
    pub const fn is_own_doing(self) -> bool {
        matches!(self, Self::Source | Self::Thread)
    }
}

/// A panic that was caught, and what it cost a port its place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Defect {
    /// What was done for the port.
    pub role: Role,
    /// Where the panic began.
    pub place: Place,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = match self.role {
            Role::Source => "served the port",
            Role::Sender => "gave frames of the port to another",
            Role::Receiver => "gave frames to the port",
            Role::Thread => "followed the port's client",
        };
        write!(f, "a defect of Ringway, please report it: it failed at {} when it {doing}", self.place)
    }
}

thread_local! {
    /// The thread's panics are caught, and told by whoever catches them.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic began.
    static LAST: Cell<Place> = const { Cell::new(Place::UNKNOWN) };
    /// The port that is served is being given frames that others left for it.
    static GIVING: Cell<bool> = const { Cell::new(false) };
}

/// Runs the part of a step in which the port that is served is given frames that others left for it. A panic in there makes the
/// port a [`Role::Receiver`].
#[inline]
pub fn giving<T>(give: impl FnOnce() -> T) -> T {
    GIVING.set(true);
    let given = give();
    GIVING.set(false);
    given
}

/// After a panic: whether it interrupted [`giving`]. Asked once for each panic.
#[cold]
#[must_use]
pub fn take_giving() -> bool {
    GIVING.try_with(|giving| giving.replace(false)) == Ok(true)
}

/// From now on the calling thread contains its panics: the process's hook, which the engine installs, notes them.
pub fn guard_thread() {
    GUARDED.set(true);
}

/// Whether a panic of the calling thread will be caught. For the process's hook.
#[must_use]
pub fn is_guarded() -> bool {
    // A thread that ends has no such memory any more; its panic is nobody's to catch.
    GUARDED.try_with(Cell::get) == Ok(true)
}

/// Notes where a panic of the calling thread began. For the process's hook.
pub fn note_panic(place: Place) {
    let _ = LAST.try_with(|last| last.set(place));
}

/// Runs a step that belongs to one client, on any thread.
///
/// What the step has changed may be half done: whoever goes on throws it away.
///
/// # Errors
/// The step panicked: where.
#[inline(always)]
pub fn contain<T>(step: impl FnOnce() -> T) -> Result<T, Place> {
    let before = GUARDED.try_with(|guarded| guarded.replace(true)).unwrap_or(false);
    let result = catch_unwind(AssertUnwindSafe(step));
    let _ = GUARDED.try_with(|guarded| guarded.set(before));
    result.map_err(caught)
}

#[cold]
fn caught(payload: Box<dyn Any + Send>) -> Place {
    // What somebody threw may panic once more when it is dropped. A text does not.
    if !payload.is::<&'static str>() && !payload.is::<String>() {
        std::mem::forget(payload);
    }
    LAST.try_with(|last| last.replace(Place::UNKNOWN)).unwrap_or(Place::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_outside_of_giving_is_not_taken_for_one_inside() {
        assert!(!take_giving());
        giving(|| ());
        assert!(!take_giving(), "it ended");
        assert!(contain(|| giving(|| panic!("injected"))).is_err());
        assert!(take_giving());
        assert!(contain(|| panic!("injected")).is_err());
        assert!(!take_giving(), "the next panic is another");
    }

    #[test]
    fn a_place_is_remembered_once_with_its_first_message_and_the_table_does_not_grow() {
        let place = Place::note("some/file.rs", 7, "first\nline");
        assert_eq!(Place::note("some/file.rs", 7, "second"), place);
        assert_eq!(place.to_string(), "some/file.rs:7 (first line)");
        assert_eq!(place.file_and_line(), Some(("some/file.rs", 7)));
        let long = Place::note("long.rs", 1, &"\u{e4}".repeat(1000));
        assert!(long.to_string().len() < 2 * MESSAGE_BYTES);
        let table = [const { OnceLock::new() }; 3];
        let indices: Vec<_> = (0..5).map(|line| note_in(&table, "many.rs", line, "")).collect();
        assert_eq!(indices, [Some(0), Some(1), Some(2), None, None]);
        assert_eq!(note_in(&table, "many.rs", 1, ""), Some(1), "those that are remembered stay");
        assert_eq!(Place::UNKNOWN.to_string(), "an unknown place");
    }
}
