//! How frames get from a device to a socket, and what is common to opening one.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::program::Place;

/// Time between two of these tries.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// How frames get from the device to the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The first of the following that the device has.
    #[default]
    Auto,
    /// The device reads and writes the socket's memory.
    ZeroCopy,
    /// The driver gives frames early, and the kernel copies them.
    Copy,
    /// The kernel's stack gives frames, and the kernel copies them: every device has this.
    Generic,
}

impl Mode {
    /// The modes that are tried.
    #[must_use]
    pub fn tries(self) -> &'static [(Mode, Place, Transfer)] {
        const ALL: [(Mode, Place, Transfer); 3] = [
            (Mode::ZeroCopy, Place::Driver, Transfer::ZeroCopy),
            (Mode::Copy, Place::Driver, Transfer::Copy),
            (Mode::Generic, Place::Stack, Transfer::Copy),
        ];
        match self {
            Mode::Auto => &ALL,
            Mode::ZeroCopy => &ALL[..1],
            Mode::Copy => &ALL[1..2],
            Mode::Generic => &ALL[2..],
        }
    }
}

/// How frames get between the device and the socket's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The device writes and reads the socket's memory.
    ZeroCopy,
    /// The kernel copies each frame.
    Copy,
}

/// The queues of sockets that were closed just now: a kernel thread frees them, within a moment, and later on a busy machine.
#[derive(Clone, Copy, Debug)]
pub struct Freed(Instant);

impl Freed {
    /// Waits this long for all queues together.
    #[must_use]
    pub fn within(time: Duration) -> Freed {
        Freed(Instant::now() + time)
    }

    /// Opens a queue, again and again while it may be that a closed socket has it.
    ///
    /// # Errors
    /// Another socket has it, or it cannot be opened.
    pub fn open<T>(self, queue: u32, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::BUSY | Errno::NOBUFS)) => {
                    if Instant::now() >= self.0 {
                        let what = format!("another socket has its queue {queue}: end the program that has it");
                        let is_busy = Errno::from_io_error(&error) == Some(Errno::BUSY);
                        return Err(if is_busy { io::Error::other(what) } else { error });
                    }
                    std::thread::sleep(TRY_EVERY);
                }
                other => return other,
            }
        }
    }
}

/// Says what to do if a program cannot be attached because there is another one.
#[must_use]
pub fn other_program(name: &str, error: io::Error) -> io::Error {
    if Errno::from_io_error(&error) != Some(Errno::BUSY) {
        return error;
    }
    io::Error::other(format!(
        "it has another XDP program: end the program that attached it, or remove it (ip link set {name} xdp off)"
    ))
}

/// Says what to do about an error of the kernel.
#[must_use]
pub fn help(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "this user may not: AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF".to_owned()
        }
        Some(Errno::NOBUFS) => {
            "RLIMIT_MEMLOCK is too small for its memory: raise it (LimitMEMLOCK=infinity)".to_owned()
        }
        Some(Errno::AFNOSUPPORT) => "this kernel has no XDP sockets (CONFIG_XDP_SOCKETS)".to_owned(),
        _ => error.to_string(),
    }
}
