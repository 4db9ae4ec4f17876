//! The thread that does for programs what pollers must not do: it has instances started anew, fires timers, writes the log, and releases the
//! memory of instances that have ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_switch::{contain, guard_thread};

use crate::clock::monotonic_ns;

/// Jobs that may wait. With more, lines of the log are lost, and a look comes after those that wait.
const QUEUE: usize = 256;

/// A program, as the keeper sees it.
pub(crate) trait Kept: Send + Sync {
    /// Returns true once after a fault has ended an instance that has to be started anew.
    fn has_ended(&self) -> bool;

    /// Starts the instances anew that a fault has ended. May take a second for each.
    fn restart(&self);

    /// Fires the timers that are due. Does not wait for long.
    fn fire(&self, now: u64) -> Timers;

    /// Fires the timer of an instance, if it is due, as soon as the instance is free. May take a second.
    fn fire_held(&self, instance: usize);
}

/// The timers of a program that are left.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// When the next is due, in nanoseconds.
    pub(crate) next: Option<u64>,
    /// The instances that are in use for longer, and whose timers are due. [`Kept::fire_held`] has to follow for each; until it is
    /// done, their timers are left out here.
    pub(crate) held: Vec<usize>,
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

/// Gives jobs to the keeper.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    queue: SyncSender<Job>,
    /// A job found the queue full: the keeper looks at all programs after one of those before it.
    has_missed: Arc<AtomicBool>,
}

impl Jobs {
    /// Jobs for a caller that does them itself.
    pub(crate) fn collected() -> (Jobs, Receiver<Job>) {
        let (queue, receiver) = sync_channel(QUEUE);
        (Jobs { queue, has_missed: Arc::default() }, receiver)
    }

    /// Gives a job, without waiting. Returns it if the queue is full; the keeper then looks at all programs soon.
    pub(crate) fn give(&self, job: Job) -> Option<Job> {
        match self.queue.try_send(job) {
            Ok(()) => None,
            Err(TrySendError::Full(job)) => {
                self.has_missed.store(true, Ordering::Release);
                // The keeper may have emptied the queue before that.
                let _ = self.queue.try_send(Job::Look);
                Some(job)
            }
            Err(TrySendError::Disconnected(job)) => Some(job),
        }
    }

    /// Has a program watched. Waits while the queue is full: not for pollers.
    pub(crate) fn watch(&self, program: Weak<dyn Kept>) {
        let _ = self.queue.send(Job::Watch(program));
    }
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    jobs: Jobs,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(crate) fn start() -> std::io::Result<Keeper> {
        let (jobs, queue) = Jobs::collected();
        let own = jobs.clone();
        let thread = std::thread::Builder::new().name("programs".to_owned()).spawn(move || run(&queue, &own))?;
        Ok(Keeper { jobs, thread: Some(thread) })
    }

    pub(crate) fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.jobs.queue.send(Job::End);
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
        let job = match due {
            Some(due) => queue.recv_timeout(Duration::from_nanos(due.saturating_sub(monotonic_ns()))),
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let looks = match job {
            Ok(Job::Watch(program)) => {
                programs.push(program);
                true
            }
            Ok(Job::Log(line)) => {
                tracing::info!("{line}");
                false
            }
            Ok(Job::Fault(line)) => {
                tracing::warn!("{line}");
                false
            }
            Ok(Job::Drop(old)) => {
                if let Err(place) = contain(|| drop(old)) {
                    tracing::error!(
                        "a defect of Ringway, please report it: an instance of a program failed at {place}"
                    );
                }
                false
            }
            Ok(Job::Look) | Err(RecvTimeoutError::Timeout) => true,
            Ok(Job::End) | Err(RecvTimeoutError::Disconnected) => return,
        };
        if !jobs.has_missed.swap(false, Ordering::Acquire) && !looks {
            continue;
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
        apart("restart-program", program, jobs, |program| program.restart());
    }
    let Timers { next, held } = program.fire(monotonic_ns());
    for instance in held {
        apart("fire-timer", program, jobs, move |program| program.fire_held(instance));
    }
    next
}

/// Has a thread of its own do this for a program: the timers and the log of other programs go on meanwhile.
fn apart(name: &str, program: &Arc<dyn Kept>, jobs: &Jobs, work: impl Fn(&dyn Kept) + Clone + Send + 'static) {
    let (of_thread, own, jobs) = (work.clone(), Arc::clone(program), jobs.clone());
    let run = move || {
        guard_thread();
        if let Err(place) = contain(|| of_thread(&*own)) {
            tracing::error!("a defect of Ringway, please report it: a forwarding program failed at {place}");
        }
        // The instances may have new timers.
        let _ = jobs.give(Job::Look);
    };
    if std::thread::Builder::new().name(name.to_owned()).spawn(run).is_err() {
        work(&**program);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Kept for Counting {
        fn has_ended(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }

        fn restart(&self) {}

        fn fire(&self, _: u64) -> Timers {
            Timers::default()
        }

        fn fire_held(&self, _: usize) {}
    }

    /// Ends when its sender is dropped.
    struct Slow(Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn a_look_that_found_the_queue_full_is_made_up_for() {
        let keeper = Keeper::start().expect("a thread");
        let jobs = keeper.jobs();
        let program = Arc::new(Counting::default());
        jobs.watch(Arc::downgrade(&program) as Weak<dyn Kept>);
        let (release, held) = channel();
        assert!(jobs.give(Job::Drop(Box::new(Slow(held)))).is_none());
        while jobs.give(Job::Drop(Box::new(()))).is_none() {}
        assert!(jobs.give(Job::Look).is_some(), "the queue is full");
        let before = program.0.load(Ordering::Relaxed);
        drop(release);
        drop(keeper);
        assert!(program.0.load(Ordering::Relaxed) > before);
    }
}
