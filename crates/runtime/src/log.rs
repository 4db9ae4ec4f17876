//! What the daemon says: lines for standard error (its log) and for standard output.
//!
//! The reader of these lines may have stopped reading or gone, and the disk that they go to may be full. So no thread that does other work
//! writes them: each of the two has a queue with a bound and a thread of its own, and a line for which there is no room is lost. Lost lines
//! are counted ([`lost`]), and the line `N lines ... were lost` stands in their place as soon as something can be written again.
//!
//! ```text
//!  tracing, `warn_limited`, ... --> queue (1 MiB) --> thread "log" --> standard error
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Most bytes of the lines that wait.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of memory that a line takes besides its own.
const LINE_BYTES: usize = 64;
/// Time after which the writer tries again to say that lines were lost.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Pause of a writer whose non-blocking file had no room: some files say that they have room and have none.
const PAUSE: Duration = Duration::from_millis(1);

// SAFETY: this process never closes its standard output, and the standard library opens it if it was closed.
static STDOUT: Lines = Lines::new("standard output", unsafe { BorrowedFd::borrow_raw(1) });
// SAFETY: as above, of standard error.
static STDERR: Lines = Lines::new("the log", unsafe { BorrowedFd::borrow_raw(2) });

/// The lines of standard output.
pub fn stdout() -> &'static Lines {
    &STDOUT
}

/// The lines of standard error.
pub fn stderr() -> &'static Lines {
    &STDERR
}

/// Lines are said and not written yet: no thread may be started.
static HELD: AtomicBool = AtomicBool::new(false);

/// Holds lines back until [`start`] or [`flush`]: what a process gives up at its start holds only for threads that it starts later.
pub fn hold() {
    HELD.store(true, Ordering::Relaxed);
}

/// Starts the threads. Without this, the first line starts that of its file, with the scheduling of the thread that says it.
pub fn start() {
    HELD.store(false, Ordering::Relaxed);
    // A file that has reached the limit of its size (RLIMIT_FSIZE) is an error for the writer then, and not the end of the process.
    // SAFETY: sets what a signal does that nothing else here uses.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for lines in [&STDOUT, &STDERR] {
        lines.start(&mut lines.queue());
    }
}

/// Returns the number of lines of both that were lost.
pub fn lost() -> u64 {
    STDOUT.lost() + STDERR.lost()
}

/// Waits until all lines are written or lost, but no longer than `within`.
pub fn flush(within: Duration) {
    if HELD.load(Ordering::Relaxed) {
        start();
    }
    let deadline = Instant::now() + within;
    STDERR.flush(deadline);
    STDOUT.flush(deadline);
}

/// Lines on their way to a file.
#[derive(Debug)]
pub struct Lines {
    /// What they are, for people.
    name: &'static str,
    file: BorrowedFd<'static>,
    queue: Mutex<Queue>,
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Line>,
    /// Bytes of memory that the waiting lines take.
    bytes: usize,
    /// Lines that were lost since the last one that waits.
    lost: u64,
    /// The writer runs, and has something to write.
    is_writing: bool,
    has_writer: bool,
}

#[derive(Debug)]
struct Line {
    /// Lines that were lost before this one.
    lost: u64,
    text: Box<[u8]>,
}

impl Lines {
    const fn new(name: &'static str, file: BorrowedFd<'static>) -> Self {
        let queue = Queue { waiting: VecDeque::new(), bytes: 0, lost: 0, is_writing: false, has_writer: false };
        Self { name, file, queue: Mutex::new(queue), changed: Condvar::new(), lost: AtomicU64::new(0) }
    }

    /// Says something: one or more whole lines, without the last one's end. Never waits.
    pub fn say(&'static self, text: &str) {
        self.push(format!("{text}\n").into_bytes(), false);
    }

    /// Says something before all that waits.
    pub fn say_first(&'static self, text: &str) {
        self.push(format!("{text}\n").into_bytes(), true);
    }

    /// Returns the number of lines that were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Starts the writer, if it does not run. If there can be no thread, the lines wait for the next call.
    fn start(&'static self, queue: &mut Queue) {
        if !queue.has_writer {
            let writer = std::thread::Builder::new().name("log".to_owned()).spawn(|| self.write_all());
            queue.has_writer = writer.is_ok();
        }
    }

    fn push(&'static self, text: Vec<u8>, is_first: bool) {
        let mut queue = self.queue();
        if !HELD.load(Ordering::Relaxed) {
            self.start(&mut queue);
        }
        let bytes = text.len() + LINE_BYTES;
        if is_first {
            queue.waiting.push_front(Line { lost: 0, text: text.into() });
        } else if queue.bytes + bytes <= BYTES_MAX {
            let lost = std::mem::take(&mut queue.lost);
            queue.waiting.push_back(Line { lost, text: text.into() });
        } else {
            queue.lost += 1;
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes += bytes;
        drop(queue);
        self.changed.notify_all();
    }

    fn flush(&self, deadline: Instant) {
        let mut queue = self.queue();
        while queue.is_writing || !queue.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (queue, _) = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The writer's thread.
    fn write_all(&self) {
        let mut writer = Writer { file: self.file, is_cut: false };
        // Lines that could not be written since the last one that was.
        let mut failed = 0;
        let mut why = None;
        loop {
            let Line { lost, text } = self.next(failed > 0);
            let untold = failed + lost;
            let mut result = Ok(());
            if untold > 0 {
                let reason = why.as_ref().map_or("its reader was too slow".to_owned(), ToString::to_string);
                let name = self.name;
                result = writer.write(format!("ringway: {untold} lines of {name} were lost: {reason}\n").as_bytes());
            }
            failed = untold;
            if result.is_ok() {
                (failed, why) = (0, None);
                result = writer.write(&text);
            }
            if let Err(error) = result {
                why = Some(error);
                if !text.is_empty() {
                    failed += 1;
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Waits for the next line. Returns an empty line if none waits and the writer has to tell of lost lines: at once, or after
    /// [`AGAIN_AFTER`] if the last write `has_failed`.
    fn next(&self, has_failed: bool) -> Line {
        let mut queue = self.queue();
        let mut is_due = false;
        loop {
            if let Some(line) = queue.waiting.pop_front() {
                queue.bytes -= line.text.len() + LINE_BYTES;
                queue.is_writing = true;
                return line;
            }
            if is_due || queue.lost > 0 {
                let lost = std::mem::take(&mut queue.lost);
                queue.is_writing = !has_failed;
                return Line { lost, text: Box::default() };
            }
            queue.is_writing = false;
            self.changed.notify_all();
            queue = if has_failed {
                let (queue, waited) =
                    self.changed.wait_timeout(queue, AGAIN_AFTER).unwrap_or_else(PoisonError::into_inner);
                is_due = waited.timed_out();
                queue
            } else {
                self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For formatters of log lines. Each write is one or more whole lines.
impl io::Write for &'static Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.push(text.to_vec(), false);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to a file that may be full, or whose reader may have gone.
struct Writer {
    file: BorrowedFd<'static>,
    /// The last line was written in part only.
    is_cut: bool,
}

impl Writer {
    /// Writes whole lines. Waits for room for as long as it takes.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_cut {
            self.write_bytes(b"\n")?;
            self.is_cut = false;
        }
        self.write_bytes(lines)
    }

    fn write_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(self.file, bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    self.is_cut = !bytes.is_empty();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    std::thread::sleep(PAUSE);
                    let again = Timespec { tv_sec: AGAIN_AFTER.as_secs() as i64, tv_nsec: 0 };
                    let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&again));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader, Read};
    use std::os::fd::{AsFd, OwnedFd};

    use ringway_testing::{PATIENCE, until};
    use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

    use super::*;

    /// Lines to a file that is never closed.
    fn lines_to(file: OwnedFd) -> &'static Lines {
        let file: &'static OwnedFd = Box::leak(Box::new(file));
        Box::leak(Box::new(Lines::new("the log", file.as_fd())))
    }

    /// A pipe that takes a page.
    fn small_pipe(flags: PipeFlags) -> (BufReader<File>, OwnedFd) {
        let (reader, writer) = pipe_with(flags).expect("a pipe");
        fcntl_setpipe_size(&writer, 4096).expect("a small pipe");
        (BufReader::new(reader.into()), writer)
    }

    /// Says lines until some are lost, the last ones. Returns the number of lines that were said. The pipe is too small for the first.
    fn say_too_much(log: &'static Lines) -> u64 {
        log.say(&format!("line 1 {}", "x".repeat(5000)));
        until("the writer waits for the reader", || log.queue().waiting.is_empty());
        let mut said = 1;
        while log.lost() < 3 {
            said += 1;
            log.say(&format!("line {said} {}", "x".repeat(5000)));
        }
        said
    }

    fn read_line(pipe: &mut BufReader<File>) -> String {
        let mut line = String::new();
        pipe.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn all_are_read_or_told(flags: PipeFlags) {
        let (mut reader, writer) = small_pipe(PipeFlags::empty());
        if flags.contains(PipeFlags::NONBLOCK) {
            rustix::io::ioctl_fionbio(&writer, true).expect("a pipe");
        }
        let log = lines_to(writer);
        let said = say_too_much(log);
        assert_eq!(log.lost(), 3);
        for number in 1..=said - 3 {
            assert!(read_line(&mut reader).starts_with(&format!("line {number} x")));
            if number == 1 {
                // The queue has room again. The next line stands behind the lost ones.
                until("there is room", || log.queue().bytes + 3 * LINE_BYTES < BYTES_MAX);
                log.say("after");
            }
        }
        assert_eq!(read_line(&mut reader), "ringway: 3 lines of the log were lost: its reader was too slow");
        assert_eq!(read_line(&mut reader), "after");
        log.flush(Instant::now() + PATIENCE);
    }

    #[test]
    fn a_reader_that_does_not_read_delays_nobody_and_learns_how_much_it_has_missed() {
        all_are_read_or_told(PipeFlags::empty());
    }

    #[test]
    fn so_does_one_of_a_pipe_that_does_not_block() {
        all_are_read_or_told(PipeFlags::NONBLOCK);
    }

    #[test]
    fn a_file_that_takes_nothing_loses_lines_and_is_told_of_them_when_it_takes_some() {
        // A full disk that is emptied: a FIFO whose reader comes back.
        let dir = ringway_testing::file::directory();
        let path = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("a FIFO");
        let open = |flags| rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).expect("the FIFO");
        let reader = open(rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK);
        let log = lines_to(open(rustix::fs::OFlags::WRONLY));
        drop(reader);
        log.say("one");
        log.say("two");
        log.flush(Instant::now() + PATIENCE);
        assert_eq!(log.lost(), 2);
        let mut reader = BufReader::new(File::from(open(rustix::fs::OFlags::RDONLY)));
        assert_eq!(read_line(&mut reader), "ringway: 2 lines of the log were lost: Broken pipe (os error 32)");
        log.say("three");
        assert_eq!(read_line(&mut reader), "three");
        assert_eq!(log.lost(), 2);
    }

    #[test]
    fn a_flush_ends_although_nothing_is_read() {
        let (_reader, writer) = small_pipe(PipeFlags::empty());
        let log = lines_to(writer);
        say_too_much(log);
        log.flush(Instant::now() + Duration::from_millis(1));
        assert!(!log.queue().waiting.is_empty());
    }

    #[test]
    fn what_ends_the_process_is_said_first() {
        let (mut reader, writer) = small_pipe(PipeFlags::empty());
        let log = lines_to(writer);
        log.say(&"x".repeat(5000));
        until("the writer waits for the reader", || log.queue().waiting.is_empty());
        log.say("waits");
        log.say_first("the end");
        reader.by_ref().take(5001).read_to_end(&mut Vec::new()).expect("the first line");
        assert_eq!([read_line(&mut reader), read_line(&mut reader)], ["the end", "waits"]);
    }
}
