//! Writes files on a thread of its own: while a disk is slow, only those wait who send files.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::files::Incoming;
use super::services::Verdict;

/// With so many bytes in its queue, the writer takes no further files.
const MOST_QUEUED: usize = 64 << 20;
/// Bytes that a job takes beside its own.
const JOB: usize = 256;
/// Longest wait at the end for a write that is under way.
const SETTLE: Duration = Duration::from_secs(1);

/// What the writer has to do for the file with this key.
pub enum Job {
    /// Begin a file of this name and size.
    Begin(String, u64),
    /// Add bytes.
    Add(Vec<u8>),
    /// Give the complete file its name.
    Finish,
    /// Remove it.
    Drop,
}

impl Job {
    /// Returns the memory that it takes.
    fn bytes(&self) -> usize {
        JOB + match self {
            Self::Begin(name, _) => name.len(),
            Self::Add(bytes) => bytes.len(),
            Self::Finish | Self::Drop => 0,
        }
    }
}

/// What the writer has done.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// The file has begun, or is not taken.
    Begun(Verdict),
    /// So many bytes were written.
    Written(usize),
    /// The file is there, or cannot be.
    Finished(Verdict),
    /// Nothing of it is left to do.
    Dropped,
}

/// The thread. Its callers bound what they give it to do for a file.
pub struct Writer {
    jobs: Sender<(u64, Job)>,
    done: Receiver<(u64, Done)>,
    /// Readable when something is done.
    wakes: Arc<OwnedFd>,
    /// Bytes of the jobs that are not done.
    queued: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Writer {
    /// Starts the thread, which begins files by `begin` with name, size and key.
    ///
    /// # Errors
    /// The kernel has no thread or no descriptor for it.
    pub fn start(begin: impl FnMut(&str, u64, u64) -> Result<Incoming, String> + Send + 'static) -> io::Result<Self> {
        let wakes = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (queued, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let ((jobs, todo), (said, done)) = (channel::<(u64, Job)>(), channel());
        let (wake, left, ends) = (wakes.clone(), queued.clone(), is_over.clone());
        std::thread::Builder::new().name("writer".to_owned()).spawn(move || {
            let say = |key, what| {
                // The other side may be gone.
                let _ = said.send((key, what));
                // Full only if nobody has read it for 2^64 times.
                let _ = rustix::io::write(&wake, &1_u64.to_ne_bytes());
            };
            let mut files = Files { files: BTreeMap::new(), begin };
            for (key, job) in todo {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let bytes = job.bytes();
                if let Some(done) = files.perform(key, job) {
                    say(key, done);
                }
                left.fetch_sub(bytes, Ordering::Relaxed);
            }
            // Before the other side sees the end of `said`.
            drop(files);
        })?;
        Ok(Self { jobs, done, wakes, queued, is_over })
    }

    /// Gives the thread something to do.
    pub fn give(&self, key: u64, job: Job) {
        self.queued.fetch_add(job.bytes(), Ordering::Relaxed);
        // The thread ends after this side.
        let _ = self.jobs.send((key, job));
    }

    /// Returns true if the disk is so far behind that no further file is to begin.
    pub fn is_full(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > MOST_QUEUED
    }

    /// Returns what was done next.
    pub fn done(&self) -> Option<(u64, Done)> {
        self.done.try_recv().ok()
    }

    /// Returns the descriptor that is readable when something is done.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }

    /// Makes the descriptor unreadable, before [`Writer::done`] is asked for everything.
    pub fn awake(&self) {
        let _ = rustix::io::read(&self.wakes, &mut [0; 8]);
    }
}

impl Drop for Writer {
    /// Removes the files that are not complete, unless the disk does not answer.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It may wait for a job.
        self.give(0, Job::Drop);
        let until = Instant::now() + SETTLE;
        while self.done.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    }
}

/// The files that are not complete, by their keys.
struct Files<B> {
    files: BTreeMap<u64, Incoming>,
    begin: B,
}

impl<B: FnMut(&str, u64, u64) -> Result<Incoming, String>> Files<B> {
    fn perform(&mut self, key: u64, job: Job) -> Option<Done> {
        match job {
            Job::Begin(name, size) => {
                let begun = (self.begin)(&name, size, key);
                Some(Done::Begun(begun.map(|file| drop(self.files.insert(key, file)))))
            }
            Job::Add(bytes) => match self.files.get_mut(&key)?.add(&bytes) {
                Ok(()) => Some(Done::Written(bytes.len())),
                Err(why) => {
                    self.files.remove(&key);
                    Some(Done::Finished(Err(why)))
                }
            },
            Job::Finish => Some(Done::Finished(self.files.remove(&key)?.finish())),
            Job::Drop => {
                self.files.remove(&key);
                Some(Done::Dropped)
            }
        }
    }
}
