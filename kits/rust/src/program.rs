//! What a program is.

use crate::batch::{Batch, Head};
use crate::host;
use crate::log;
use crate::memory;

/// A forwarding program. [`export!`](crate::export!) makes a module of it.
pub trait Program: Sized + 'static {
    /// The first bytes of each frame that the program reads: `[u8; N]`, with N from 0 to 128.
    type Head: Head;
    /// Most frames of a batch, 1 to 1024. A larger batch of the switch comes in several.
    const CAPACITY: usize = 256;
    /// Whether the program reads anything of single frames. Without it frames cost less, and look empty: no bytes, length, port or VLAN.
    const DESCRIPTORS: bool = true;

    /// Starts the program.
    ///
    /// # Errors
    /// The program cannot run, for example because `config` has a mistake. The switch keeps what it had before.
    fn start(start: &mut Start) -> Result<Self, Refused>;

    /// Gives a verdict for each frame of a batch. Frames without one go where the learning bridge would send them.
    fn frames(&mut self, batch: Batch<'_, Self::Head>);

    /// Is called before the first batch, and before the first batch after the switch's ports have changed.
    fn ports(&mut self) {}

    /// Is called when the time of [`timer`](crate::timer) has come.
    fn timer(&mut self) {}

    /// Takes a message of the administrator (`ringway switch tell`), at most 1024 bytes.
    ///
    /// # Errors
    /// The message is wrong.
    fn tell(&mut self, _message: &str) -> Result<(), Refused> {
        Err("this program takes no messages".into())
    }
}

/// A program that hands its state to the program that replaces it, and takes that of the one before: `export!(Type, state)`.
pub trait State: Program {
    /// Saves the state of this instance.
    fn save(&self, saved: &mut Saved);

    /// Takes the state of one instance of the program before. It is called after `start`, once for each of them.
    ///
    /// # Errors
    /// The state is wrong. The new program starts empty then.
    fn restore(&mut self, state: &'static [u8]) -> Result<(), Refused>;
}

/// Why a program, its state or a message is refused: `Err("no such port".into())`. The reason is a line of the log.
#[derive(Debug)]
pub struct Refused(());

impl From<&str> for Refused {
    fn from(reason: &str) -> Refused {
        log::log(reason);
        Refused(())
    }
}

/// Refuses with a reason, as `format!` makes it: `return Err(refuse!("line {}: no such port", n));`
#[macro_export]
macro_rules! refuse {
    ($($what:tt)+) => {
        $crate::Refused::from($crate::Line::new(format_args!($($what)+)).text())
    };
}

/// What only a start may do.
#[derive(Debug)]
pub struct Start(());

impl Start {
    pub(crate) fn new() -> Start {
        Start(())
    }

    /// The text of the key `config`.
    ///
    /// # Errors
    /// It is longer than the memory of the instance.
    pub fn config(&self) -> Result<&'static str, Refused> {
        // SAFETY: the switch writes nothing to a capacity of 0.
        let length = unsafe { host::config(core::ptr::null_mut(), 0) };
        let bytes = memory::filled(length, 0).ok_or("no memory for the text of config")?;
        // SAFETY: the switch writes at most as many bytes as the slice has.
        unsafe { host::config(bytes.as_mut_ptr(), bytes.len()) };
        Ok(core::str::from_utf8(bytes).map_err(|_| "config is no UTF-8 text")?)
    }

    /// A drop reason of the program's own, at most 32. A name is 1 to 48 letters a-z, digits and `_`, and begins with a letter. The same name gives the same
    /// reason again.
    pub fn drop_reason(&mut self, name: &str) -> DropReason {
        // SAFETY: the switch reads the bytes of the name.
        DropReason(unsafe { host::drop_reason(name.as_ptr(), name.len()) })
    }

    /// A counter of the program's own, at most 64; its name as that of a drop reason.
    pub fn counter(&mut self, name: &str) -> Counter {
        // SAFETY: the switch reads the bytes of the name.
        Counter(unsafe { host::counter(name.as_ptr(), name.len()) })
    }

    /// A gauge of the program's own, whose value can also fall.
    pub fn gauge(&mut self, name: &str) -> Gauge {
        // SAFETY: the switch reads the bytes of the name.
        Gauge(unsafe { host::gauge(name.as_ptr(), name.len()) })
    }
}

/// A drop reason of the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropReason(u32);

impl DropReason {
    #[inline]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// A counter of the program's own, in status and `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter(u32);

impl Counter {
    /// Adds to it. Once for a batch costs less than once for a frame.
    #[inline]
    pub fn add(self, value: u64) {
        // SAFETY: no memory is used.
        unsafe { host::counter_add(self.0, value) }
    }
}

/// A gauge of the program's own, in status and `/metrics`: the sum of all instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge(u32);

impl Gauge {
    /// Sets it.
    pub fn set(self, value: i64) {
        // SAFETY: no memory is used.
        unsafe { host::gauge_set(self.0, value) }
    }
}

/// Where a program's state is saved to.
#[derive(Debug)]
pub struct Saved(());

impl Saved {
    pub(crate) fn new() -> Saved {
        Saved(())
    }

    /// Appends bytes to the state, up to 1 MiB together.
    pub fn append(&mut self, bytes: &[u8]) {
        // SAFETY: the switch reads the bytes.
        unsafe { host::save(bytes.as_ptr(), bytes.len()) }
    }
}
