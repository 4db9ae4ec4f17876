//! The thread that does for programs what pollers must not do: it has instances started anew, fires timers, writes the log, and releases the
//! memory of instances that have ended.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_switch::{contain, guard_thread};

use crate::clock::monotonic_ns;

/// Jobs that may wait. With more, lines of the log are lost, and others wait for the next look.
const QUEUE: usize = 256;
/// Longest time between two looks while there are programs with timers or with instances to be started anew: for jobs that found the queue full.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A program, as the keeper sees it.
pub(crate) trait Kept: Send + Sync {
    /// Returns true once after a fault has ended an instance that has to be started anew.
    fn has_ended(&self) -> bool;

    /// Starts the instances anew that a fault has ended. May take a second for each.
    fn restart(&self);

    /// Fires the timers that are due. Returns when the next is due, in nanoseconds.
    fn fire(&self, now: u64) -> Option<u64>;
}

/// Something for the keeper to do.
pub(crate) enum Job {
    /// Watch this program.
    Watch(Weak<dyn Kept>),
    /// An instance has ended or a timer was set: look at all programs.
    Look,
    /// Write a line of a program's log.
    Log(String),
    /// Report the fault of a program.
    Fault(String),
    /// Drop something whose release takes time.
    Drop(Box<dyn Send>),
    /// End.
    End,
}

/// Gives jobs to the keeper. Never waits.
#[derive(Clone, Debug)]
pub(crate) struct Jobs(SyncSender<Job>);

impl Jobs {
    /// Jobs for a caller that does them itself.
    pub(crate) fn collected() -> (Jobs, Receiver<Job>) {
        let (jobs, queue) = sync_channel(QUEUE);
        (Jobs(jobs), queue)
    }

    /// Gives a job. Returns it if the queue is full.
    pub(crate) fn give(&self, job: Job) -> Option<Job> {
        match self.0.try_send(job) {
            Ok(()) => None,
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => Some(job),
        }
    }
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    jobs: SyncSender<Job>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(crate) fn start() -> std::io::Result<Keeper> {
        let (jobs, queue) = sync_channel(QUEUE);
        let own = Jobs(jobs.clone());
        let thread = std::thread::Builder::new().name("programs".to_owned()).spawn(move || run(&queue, &own))?;
        Ok(Keeper { jobs, thread: Some(thread) })
    }

    pub(crate) fn jobs(&self) -> Jobs {
        Jobs(self.jobs.clone())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.jobs.send(Job::End);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn run(queue: &Receiver<Job>, jobs: &Jobs) {
    guard_thread();
    let mut programs: Vec<Weak<dyn Kept>> = Vec::new();
    let mut due: Option<u64> = None;
    loop {
        let until = due.map(|due| Duration::from_nanos(due.saturating_sub(monotonic_ns())).min(LOOK_EVERY));
        let job = match until {
            _ if programs.is_empty() => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => queue.recv_timeout(wait),
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match job {
            Ok(Job::Watch(program)) => programs.push(program),
            Ok(Job::Log(line)) => {
                tracing::info!("{line}");
                continue;
            }
            Ok(Job::Fault(line)) => {
                tracing::warn!("{line}");
                continue;
            }
            Ok(Job::Drop(old)) => {
                if let Err(place) = contain(|| drop(old)) {
                    tracing::error!(
                        "a defect of Ringway, please report it: an instance of a program failed at {place}"
                    );
                }
                continue;
            }
            Ok(Job::Look) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Job::End) | Err(RecvTimeoutError::Disconnected) => return,
        }
        programs.retain(|program| program.strong_count() > 0);
        due = None;
        for program in programs.iter().filter_map(Weak::upgrade) {
            match contain(|| look(&program, jobs)) {
                Ok(next) => due = [due, next].into_iter().flatten().min(),
                Err(place) => {
                    tracing::error!("a defect of Ringway, please report it: a forwarding program failed at {place}");
                }
            }
        }
    }
}

fn look(program: &Arc<dyn Kept>, jobs: &Jobs) -> Option<u64> {
    if program.has_ended() {
        restart(program, jobs);
    }
    program.fire(monotonic_ns())
}

/// Has instances started anew by a thread of their own: the timers and the log of other programs go on meanwhile.
fn restart(program: &Arc<dyn Kept>, jobs: &Jobs) {
    let (restarted, jobs) = (Arc::clone(program), jobs.clone());
    let work = move || {
        guard_thread();
        if let Err(place) = contain(|| restarted.restart()) {
            tracing::error!("a defect of Ringway, please report it: a forwarding program failed at {place}");
        }
        // The new instances may have timers.
        let _ = jobs.give(Job::Look);
    };
    if std::thread::Builder::new().name("restart-program".to_owned()).spawn(work).is_err() {
        program.restart();
    }
}
