//! How the compiler is bounded, and what its end means.
//!
//! The process can inherit lower limits than it sets. So it says how it is bounded, in the first line of its messages.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

use crate::unacceptable::Unacceptable;

/// Exit code of the compiler if it refuses the module.
pub const REFUSED: u8 = 3;
/// Exit code of the compiler if it needs more memory than its limit.
pub const TOO_MUCH_MEMORY: u8 = 4;
/// Exit code of the compiler if the kernel gives it no memory, below its limit.
pub const NO_MEMORY: u8 = 5;

/// What the first line of the compiler's messages begins with.
const WORD: &str = "bounds";

/// The limits of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Processor time.
    pub time: Duration,
    /// Address space in bytes.
    pub memory: u64,
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD} {} {}", self.time.as_secs(), self.memory)
    }
}

impl Bounds {
    /// Returns the bounds that the first line names, and what follows.
    pub(super) fn split(messages: &str) -> (Option<Bounds>, &str) {
        let Some((line, rest)) = messages.split_once('\n') else { return (None, messages) };
        let mut words = line.split(' ');
        let bounds = (|| {
            words.next().filter(|word| *word == WORD)?;
            let time = Duration::from_secs(words.next()?.parse().ok()?);
            Some(Bounds { time, memory: words.next()?.parse().ok()? })
        })();
        if bounds.is_some() { (bounds, rest) } else { (None, messages) }
    }
}

/// The compiler refuses a module.
pub(super) fn refused(why: &str) -> Unacceptable {
    Unacceptable::Module(format!("it is no WebAssembly module: {why}"))
}

/// What is wrong with the module, or with the machine, if the end of the compiler says so. `bounds` are there if the compiler came so far as
/// to read the module.
///
/// # Errors
/// What is wrong with the compiler.
pub(super) fn complaint(status: ExitStatus, bounds: Option<Bounds>, said: &str) -> Result<Unacceptable, String> {
    let is = |which: Signal| status.signal() == Some(which.as_raw());
    if is(Signal::KILL) {
        // The limits end it by other signals, and this process would know.
        let why = "most likely because the memory of the machine, or of the service, ran out";
        return Ok(Unacceptable::System(format!("the process that compiled the module was killed, {why}")));
    }
    let colon = if said.is_empty() { "" } else { ": " };
    let Some(Bounds { time, memory }) = bounds else {
        return Err(format!("it ended with {status} before it read the module{colon}{said}"));
    };
    let is_code = |code: u8| status.code() == Some(i32::from(code));
    let what = if is_code(REFUSED) {
        return Ok(refused(said));
    } else if is_code(NO_MEMORY) {
        return Ok(Unacceptable::system("the machine has too little memory now to compile the module"));
    } else if is(Signal::XCPU) {
        format!("compiling the module takes more than {} s of processor time", time.as_secs())
    } else if is_code(TOO_MUCH_MEMORY) {
        format!("compiling the module takes more than {} MiB of memory", memory >> 20)
    } else if status.signal().is_some() {
        // Its stack finds no room, or a defect of cranelift.
        format!("the compiler failed at the module, with {status}{colon}{said}")
    } else {
        return Err(format!("it ended with {status}{colon}{said}"));
    };
    Ok(Unacceptable::Module(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_what_the_first_line_says_and_any_other_line_is_a_message() {
        let bounds = Bounds { time: Duration::from_secs(7), memory: 1 << 20 };
        assert_eq!(Bounds::split(&format!("{bounds}\nno\nroom")), (Some(bounds), "no\nroom"));
        for text in ["", "bounds 7", "bounds 7 8", "bounds 7\n", "bounds x 8\n", "other 7 8\n", "\nbounds 7 8\n"] {
            assert_eq!(Bounds::split(text), (None, text));
        }
    }
}
