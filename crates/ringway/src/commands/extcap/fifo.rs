//! A fifo that another program reads.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Interval at which a wait looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// Time that a reader has after a stop, to take the end of the capture.
const LAST: Duration = Duration::from_secs(1);

/// Bytes that the kernel keeps for the reader.
const ROOM: usize = 1 << 20;

/// The writing end of a fifo. A write waits for the reader, and no longer than [`LAST`] after a stop.
#[derive(Debug)]
pub struct Fifo {
    file: Arc<File>,
    stop: Arc<AtomicBool>,
}

/// The other end of a fifo.
#[derive(Debug)]
pub struct Reader(Arc<File>);

impl Fifo {
    /// Opens a fifo when it has a reader; none if the process is to stop before that.
    ///
    /// # Errors
    /// It is not there, or cannot be written.
    pub fn open(path: &Path, stop: Arc<AtomicBool>) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        while !stop.load(Ordering::Relaxed) {
            match options.open(path) {
                Ok(file) => {
                    // As much as the user may have; the size that it has does, too.
                    let _ = rustix::pipe::fcntl_setpipe_size(&file, ROOM);
                    return Ok(Some(Self { file: Arc::new(file), stop }));
                }
                Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => sleep(LOOK),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the other end.
    pub fn reader(&self) -> Reader {
        Reader(Arc::clone(&self.file))
    }
}

impl Reader {
    /// Returns true if no program has the fifo open for reading.
    pub fn is_gone(&self) -> bool {
        has(&self.0, PollFlags::ERR, Duration::ZERO)
    }
}

impl Write for Fifo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stopped = None;
        loop {
            match (&*self.file).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            has(&self.file, PollFlags::OUT, LOOK);
            if self.stop.load(Ordering::Relaxed) && stopped.get_or_insert_with(Instant::now).elapsed() > LAST {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits at most this long for one of the events. Returns whether it is there.
fn has(file: &File, events: PollFlags, longest: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(file.as_fd(), events)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
    let _ = poll(&mut fds, Some(&timeout));
    fds[0].revents().intersects(events)
}
