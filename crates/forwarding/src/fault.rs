//! What a program can do wrong at run time.

use std::fmt;

use wasmtime::Trap;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An instruction that cannot be executed.
    Trap,
    /// A call took too much processor time.
    Time,
    /// Memory or a table was to grow beyond its limit.
    Memory,
    /// A host function was given bytes outside of the memory.
    Pointer,
    /// A host function was called where it may not be, or with a number or size that does not exist.
    Call,
    /// A verdict that is none, or that names a port or a set of ports that never was.
    Verdict,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 6] = [Self::Trap, Self::Time, Self::Memory, Self::Pointer, Self::Call, Self::Verdict];

    /// The name in `status --json` and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Pointer => "pointer",
            Self::Call => "call",
            Self::Verdict => "verdict",
        }
    }
}

/// A fault: its kind and a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// What happened.
    pub what: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, what: impl Into<String>) -> Fault {
        Fault { kind, what: what.into() }
    }

    /// The fault that ended a call.
    #[cold]
    pub(crate) fn of(error: &wasmtime::Error) -> Fault {
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return fault.clone();
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => Fault::new(FaultKind::Time, "a call took too much processor time"),
            Some(trap) => Fault::new(FaultKind::Trap, trap_text(*trap)),
            None => Fault::new(FaultKind::Trap, error.to_string()),
        }
    }

    /// The fault as an error that ends the call of a host function.
    #[cold]
    pub(crate) fn end<T>(kind: FaultKind, what: impl Into<String>) -> wasmtime::Result<T> {
        Err(wasmtime::Error::new(Fault::new(kind, what)))
    }
}

fn trap_text(trap: Trap) -> String {
    match trap {
        Trap::StackOverflow => "the stack is exhausted".to_owned(),
        Trap::MemoryOutOfBounds => "an access outside of the memory".to_owned(),
        Trap::TableOutOfBounds => "an access outside of a table".to_owned(),
        Trap::IndirectCallToNull => "an indirect call of no function".to_owned(),
        Trap::BadSignature => "an indirect call of a function of another type".to_owned(),
        Trap::IntegerDivisionByZero => "a division by zero".to_owned(),
        Trap::UnreachableCodeReached => "the instruction \"unreachable\"".to_owned(),
        other => other.to_string(),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.what)
    }
}

impl std::error::Error for Fault {}
