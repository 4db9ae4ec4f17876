//! Caught panics: the source line where each began, and for which port.
//!
//! A [`PanicLocation`] is an index into a table of fixed size. So [`crate::PortFault`] stays a small value, and a client that
//! provokes panics cannot make the process use more and more memory.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most source lines in the table. There are far fewer defects.
const PLACES: usize = 64;
/// Most bytes of a message in the table.
const MESSAGE_BYTES: usize = 200;

#[derive(Debug, PartialEq, Eq)]
struct Noted {
    file: String,
    line: u32,
    /// The message of the first panic at this line.
    message: String,
}

static NOTED: [OnceLock<Noted>; PLACES] = [const { OnceLock::new() }; PLACES];

/// A line of Ringway's source where a panic began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PanicLocation(u8);

impl PanicLocation {
    /// A source line that is not in the table.
    pub const UNKNOWN: PanicLocation = PanicLocation(u8::MAX);

    /// Returns the place of a panic at this line of `file`, and enters it into the table if it is new. The table keeps
    /// the first message of a place.
    #[must_use]
    pub fn note(file: &str, line: u32, message: &str) -> PanicLocation {
        note_in(&NOTED, file, line, message).map_or(PanicLocation::UNKNOWN, |index| PanicLocation(index as u8))
    }

    fn noted(self) -> Option<&'static Noted> {
        NOTED.get(usize::from(self.0)).and_then(OnceLock::get)
    }

    /// The source file and line; `None` for [`PanicLocation::UNKNOWN`].
    #[must_use]
    pub fn file_and_line(self) -> Option<(&'static str, u32)> {
        self.noted().map(|noted| (noted.file.as_str(), noted.line))
    }
}

/// Returns the index of a place in the table, and adds the place if it is new. Returns `None` if the table is full.
fn note_in(table: &[OnceLock<Noted>], file: &str, line: u32, message: &str) -> Option<usize> {
    let file = printable(file);
    table.iter().position(|place| {
        let noted = place.get_or_init(|| Noted { file: file.clone(), line, message: printable(message) });
        noted.line == line && noted.file == file
    })
}

/// Replaces control characters and limits the length: a message may quote bytes from a client.
fn printable(text: &str) -> String {
    let mut kept: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = (0..=MESSAGE_BYTES.min(kept.len())).rev().find(|&end| kept.is_char_boundary(end)).unwrap_or(0);
    kept.truncate(end);
    kept
}

impl fmt::Display for PanicLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.noted() {
            Some(Noted { file, line, message }) => write!(f, "{file}:{line} ({message})"),
            None => write!(f, "an unknown place"),
        }
    }
}

/// What Ringway did for a port when the panic happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It served the port: collected its frames, forwarded them, released their buffers, or called its client. Only the
    /// port's own client controls the input of these steps.
    Source,
    /// It delivered frames of the port to other ports. The receiver's client may be the cause, too: its memory is read
    /// in this step.
    Sender,
    /// It delivered frames of other ports to the port.
    Receiver,
    /// It ran the port's own thread, which handles the client's messages.
    Thread,
}

impl Role {
    /// Returns true if only the port's own client can have caused the panic. Otherwise the step read input of two
    /// clients, and either may be hostile.
    #[must_use]
    pub const fn is_attributable(self) -> bool {
        matches!(self, Self::Source | Self::Thread)
    }
}

/// A caught panic: why a port was retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Defect {
    /// What Ringway did for the port.
    pub role: Role,
    /// Where the panic began.
    pub place: PanicLocation,
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
    /// True while the code that catches the thread's panics also reports them.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic began.
    static LAST: Cell<PanicLocation> = const { Cell::new(PanicLocation::UNKNOWN) };
    /// True while the served port receives queued frames of other ports.
    static GIVING: Cell<bool> = const { Cell::new(false) };
    /// The word in which the thread notes the same for a successor of the process.
    static GIVING_NOTE: Cell<Option<&'static AtomicU64>> = const { Cell::new(None) };
}

/// Runs the part of a step in which the served port receives queued frames of other ports. After a panic in `give` the
/// port's role is [`Role::Receiver`].
#[inline]
pub fn giving<T>(give: impl FnOnce() -> T) -> T {
    let before = set_giving(true);
    let given = give();
    set_giving(before);
    given
}

#[inline]
fn set_giving(is_giving: bool) -> bool {
    if let Some(note) = GIVING_NOTE.get() {
        note.store(is_giving.into(), Ordering::Relaxed);
    }
    GIVING.replace(is_giving)
}

/// From now on this word is 1 while the calling thread is in [`giving`], and otherwise 0. `None`: the thread notes that nowhere.
pub fn note_giving_in(word: Option<&'static AtomicU64>) {
    // The thread may be ending.
    let _ = GIVING_NOTE.try_with(|note| note.set(word));
}

/// Returns true if the last panic interrupted [`giving`], and clears that. To be called once after each panic.
#[cold]
#[must_use]
pub fn take_receiving() -> bool {
    if let Ok(Some(note)) = GIVING_NOTE.try_with(Cell::get) {
        note.store(0, Ordering::Relaxed);
    }
    GIVING.try_with(|giving| giving.replace(false)) == Ok(true)
}

/// Declares that the calling thread catches its panics. The engine's panic hook then records them instead of printing
/// them.
pub fn guard_thread() {
    GUARDED.set(true);
}

/// Returns true if a panic of the calling thread will be caught. For the panic hook.
#[must_use]
pub fn is_guarded() -> bool {
    // The thread-local is gone while a thread ends. Nothing catches a panic then.
    GUARDED.try_with(Cell::get) == Ok(true)
}

/// Records where a panic of the calling thread began. For the panic hook.
pub fn note_panic(place: PanicLocation) {
    let _ = LAST.try_with(|last| last.set(place));
}

/// Runs a step that belongs to one client, on any thread.
///
/// After a panic, the caller must discard what the step was changing: it may be half changed.
///
/// # Errors
/// Where the step panicked.
#[inline(always)]
pub fn contain<T>(step: impl FnOnce() -> T) -> Result<T, PanicLocation> {
    let before = GUARDED.try_with(|guarded| guarded.replace(true)).unwrap_or(false);
    let result = catch_unwind(AssertUnwindSafe(step));
    let _ = GUARDED.try_with(|guarded| guarded.set(before));
    result.map_err(caught)
}

#[cold]
fn caught(payload: Box<dyn Any + Send>) -> PanicLocation {
    // Dropping an arbitrary payload may panic again. Dropping a string does not.
    if !payload.is::<&'static str>() && !payload.is::<String>() {
        std::mem::forget(payload);
    }
    LAST.try_with(|last| last.replace(PanicLocation::UNKNOWN)).unwrap_or(PanicLocation::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_outside_of_giving_is_not_taken_for_one_inside() {
        assert!(!take_receiving());
        giving(|| ());
        assert!(!take_receiving(), "it ended");
        assert!(contain(|| giving(|| panic!("injected"))).is_err());
        assert!(take_receiving());
        assert!(contain(|| panic!("injected")).is_err());
        assert!(!take_receiving(), "the next panic is another");
    }

    #[test]
    fn a_thread_notes_that_it_gives_until_all_is_given_or_a_panic_is_taken() {
        let word: &'static AtomicU64 = Box::leak(Box::default());
        let noted = || word.load(Ordering::Relaxed);
        note_giving_in(Some(word));
        let within = giving(|| {
            let inner = giving(noted);
            [inner, noted()]
        });
        assert_eq!((within, noted()), ([1, 1], 0), "a call in the middle may give, too");
        assert!(contain(|| giving(|| giving(|| panic!("injected")))).is_err());
        assert_eq!((noted(), take_receiving(), noted()), (1, true, 0));
        note_giving_in(None);
        assert_eq!(giving(noted), 0);
    }

    #[test]
    fn a_place_is_remembered_once_with_its_first_message_and_the_table_does_not_grow() {
        let place = PanicLocation::note("some/file.rs", 7, "first\nline");
        assert_eq!(PanicLocation::note("some/file.rs", 7, "second"), place);
        assert_eq!(place.to_string(), "some/file.rs:7 (first line)");
        assert_eq!(place.file_and_line(), Some(("some/file.rs", 7)));
        let long = PanicLocation::note("long.rs", 1, &"\u{e4}".repeat(1000));
        assert!(long.to_string().len() < 2 * MESSAGE_BYTES);
        let table = [const { OnceLock::new() }; 3];
        let indices: Vec<_> = (0..5).map(|line| note_in(&table, "many.rs", line, "")).collect();
        assert_eq!(indices, [Some(0), Some(1), Some(2), None, None]);
        assert_eq!(note_in(&table, "many.rs", 1, ""), Some(1), "those that are remembered stay");
        assert_eq!(PanicLocation::UNKNOWN.to_string(), "an unknown place");
    }
}
