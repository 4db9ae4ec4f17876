//! Containment of panics: a panic costs the port that was served, never the thread that served it.
//!
//! A thread that serves clients calls [`guard_thread`] once, and runs each step that belongs to one client inside
//! [`contain`]. The panic hook records where a panic began ([`ringway_switch::PanicLocation`]) and prints nothing: a full log
//! pipe must not delay a poller. The code that catches the panic tells the control thread, which logs the panic with
//! the port's name. A panic of such a thread that nothing contains ends the process ([`fatal`]), so that a service
//! manager starts it again.

use std::panic::PanicHookInfo;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringway_switch::{PanicLocation, contain};

use crate::{log, serving};

/// The status of a process that cannot go on because of a defect (EX_SOFTWARE, sysexits.h).
pub const INTERNAL_ERROR: i32 = 70;
/// How long [`fatal`] waits until its message is written.
const SAY_WITHIN: Duration = Duration::from_millis(100);
/// Panics of its own that a thread survives within [`STRIKES_WITHIN`].
const MOST_STRIKES: usize = 3;
/// See [`MOST_STRIKES`].
const STRIKES_WITHIN: Duration = Duration::from_secs(60);
/// Most lines that [`warn_limited`] writes.
const MOST_SAID: usize = 32;

/// Declares that the calling thread catches its panics. From now on the panic hook records them instead of printing
/// them.
pub fn guard_thread() {
    install_hook();
    ringway_switch::guard_thread();
}

/// Installs the panic hook, once per process. It records the panics of guarded threads; the previous hook handles all
/// others.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if ringway_switch::is_guarded() {
                ringway_switch::note_panic(note(info));
            } else {
                before(info);
            }
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) -> PanicLocation {
    let Some(at) = info.location() else { return PanicLocation::UNKNOWN };
    PanicLocation::note(at.file(), at.line(), info.payload_as_str().unwrap_or("no message"))
}

/// Counts the panics of a thread that no port caused. Too many of them end the process.
#[derive(Debug, Default)]
pub struct PanicCounter(Vec<Instant>);

impl PanicCounter {
    /// Counts a panic. Returns true if there were too many.
    #[must_use]
    pub fn count_panic(&mut self) -> bool {
        self.0.retain(|at| at.elapsed() < STRIKES_WITHIN);
        self.0.push(Instant::now());
        self.0.len() > MOST_STRIKES
    }
}

/// Writes a line to the log. Writes nothing after 32 lines.
pub fn warn_limited(message: &str) {
    static SAID: AtomicUsize = AtomicUsize::new(0);
    if SAID.fetch_add(1, Ordering::Relaxed) < MOST_SAID {
        log::stderr().say(&line(message));
    }
}

/// Runs a guarded thread to its end. If it panics, the process ends: a daemon that lacks a thread would fail without a
/// sign.
pub fn run_or_exit(thread: &str, run: impl FnOnce()) {
    guard_thread();
    if let Err(place) = contain(run) {
        fatal(&format!("a defect of Ringway, please report it: the thread \"{thread}\" failed at {place}"));
    }
}

/// Writes the reason as one line to the log and ends the process at once, with status 70. Waits neither for other threads nor, for longer
/// than 0.1 s, for a reader of standard error.
pub fn fatal(message: &str) -> ! {
    serving::note_exit(INTERNAL_ERROR);
    log::stderr().say_first(&line(message));
    log::flush(SAY_WITHIN);
    // SAFETY: ends the process without running exit handlers, which could wait for stuck threads.
    unsafe { libc::_exit(INTERNAL_ERROR) }
}

/// Returns the message as one line.
fn line(message: &str) -> String {
    let message: String = message.chars().map(|c| if c == '\n' { ' ' } else { c }).take(1000).collect();
    format!("ringway: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_its_place_whatever_was_thrown() {
        struct Trap;
        impl Drop for Trap {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        std::thread::spawn(|| {
            guard_thread();
            assert_eq!(contain(|| 7), Ok(7));
            let place = contain(|| panic!("number {}", 1)).map(|()| 0).expect_err("a panic");
            assert!(place.to_string().contains("contain.rs:"), "{place}");
            assert!(place.to_string().ends_with("(number 1)"), "{place}");
            assert!(contain(|| std::panic::panic_any(Trap)).is_err());
            // The place of the last one is not reported again.
            assert_eq!(contain(|| std::panic::resume_unwind(Box::new(1))), Err::<(), _>(PanicLocation::UNKNOWN));
        })
        .join()
        .expect("everything was contained");
    }
}
