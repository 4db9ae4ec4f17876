//! The resource usage of the calling thread: run time, run delay, page faults and context switches.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ringway_memory::faults_in_holes;
use ringway_switch::Moment;

use crate::{call, clock};

/// The usage of a thread, since its start or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds that the thread ran.
    pub ran: u64,
    /// Nanoseconds that the thread was ready to run and had no processor.
    pub waited: u64,
    /// Page faults, with those in watched holes of clients' files, which the kernel does not count.
    pub faults: u64,
    /// Voluntary context switches: the thread blocked.
    pub sleeps: u64,
    /// Involuntary context switches: another thread got the processor.
    pub preempted: u64,
}

impl Usage {
    /// Returns true if the thread may have slept in a page fault, in whatever memory that was.
    pub fn may_have_stalled(&self) -> bool {
        self.faults > 0 && self.sleeps > 0
    }
}

/// Reads the usage of the calling thread. Belongs to that thread.
#[derive(Debug)]
pub struct UsageReader {
    schedstat: Option<Arc<File>>,
    last: Usage,
    /// The time of the last reading.
    at: u64,
}

impl UsageReader {
    /// A reader for the calling thread, which reads for the first time at `now`.
    pub fn new(now: u64) -> UsageReader {
        UsageReader::with(File::open("/proc/thread-self/schedstat").ok().map(Arc::new), now)
    }

    /// Another reader for the same thread, with the same descriptor.
    pub fn another(&self, now: u64) -> UsageReader {
        UsageReader::with(self.schedstat.clone(), now)
    }

    fn with(schedstat: Option<Arc<File>>, now: u64) -> UsageReader {
        let mut reader = UsageReader { schedstat, last: Usage::default(), at: now };
        reader.since_last(now);
        reader
    }

    /// The time of the last reading.
    #[inline]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns the usage since the last reading. If the kernel does not report the thread's times, the thread counts as
    /// having run all the time, and as having waited all the time if it lost its processor.
    #[cold]
    pub fn since_last(&mut self, now: u64) -> Usage {
        let usage = self.read();
        let last = std::mem::replace(&mut self.last, usage);
        self.at = now;
        let waited = usage.waited.saturating_sub(last.waited);
        let faults = usage.faults.saturating_sub(last.faults);
        let sleeps = usage.sleeps.saturating_sub(last.sleeps);
        let preempted = usage.preempted.saturating_sub(last.preempted);
        match self.schedstat {
            Some(_) => Usage { ran: usage.ran.saturating_sub(last.ran), waited, faults, sleeps, preempted },
            None => {
                Usage { ran: u64::MAX, waited: if preempted > 0 { u64::MAX } else { 0 }, faults, sleeps, preempted }
            }
        }
    }

    fn read(&self) -> Usage {
        let times = self.schedstat.as_deref().and_then(times);
        let (ran, waited) = times.unwrap_or_default();
        let [faults, sleeps, preempted] = counts();
        Usage { ran, waited, faults, sleeps, preempted }
    }
}

/// The present moment of the calling thread, for measurements of single accesses.
pub fn moment() -> Moment {
    let [faults, sleeps, _] = counts();
    Moment { nanoseconds: clock::nanoseconds(), faults, sleeps, slow_calls: call::slow_nanoseconds() }
}

/// The page faults and the voluntary and involuntary context switches of the calling thread.
fn counts() -> [u64; 3] {
    // SAFETY: the structure is valid when zeroed, and outlives the call that fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
    let faults = count(usage.ru_minflt.wrapping_add(usage.ru_majflt)).wrapping_add(faults_in_holes());
    [faults, count(usage.ru_nvcsw), count(usage.ru_nivcsw)]
}

/// The nanoseconds that the thread ran and that it waited: the first two numbers of the file (proc(5)).
fn times(schedstat: &File) -> Option<(u64, u64)> {
    let mut text = [0; 96];
    let len = schedstat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use ringway_memory::{Limits, Mapping, Quota, can_limit_holes};
    use ringway_testing::file::memfd;
    use ringway_testing::skip;

    use super::*;

    #[test]
    fn page_faults_are_counted_once() {
        let mut reader = UsageReader::new(0);
        let mapping = Mapping::private(16 << 12).expect("memory");
        for page in 0..16 {
            mapping.view(page << 12, 8).expect("inside").put(0, &[1; 8]);
        }
        let seen = reader.since_last(7);
        assert!(seen.faults >= 1, "{seen:?}");
        assert_eq!(reader.at(), 7);
        // No new page is touched between two of these, except for what the kernel took away meanwhile.
        assert!((0..10).any(|_| reader.since_last(8).faults == 0));
    }

    #[test]
    fn page_faults_in_watched_holes_are_counted() {
        if !can_limit_holes() {
            skip!("needs userfaultfd(2)");
        }
        const PAGES: usize = 64;
        let file = memfd((PAGES << 12) as u64);
        let mapping = Mapping::given(file.as_fd(), 0, PAGES << 12, &Quota::of_port(Limits::PORT)).expect("mapped");
        let mut reader = UsageReader::new(0);
        for page in 0..PAGES {
            assert!(mapping.view(page << 12, 8).expect("inside").read(&mut [0; 8]));
        }
        let seen = reader.since_last(7);
        assert!(seen.faults >= PAGES as u64, "{seen:?}");
        assert!((0..10).any(|_| reader.since_last(8).faults == 0));
    }

    #[test]
    fn sleeps_are_counted_once() {
        let mut reader = UsageReader::new(0);
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(reader.since_last(1).sleeps >= 1);
        // The thread waits for nothing between two of these, except for what the kernel waits for itself.
        assert!((0..10).any(|_| reader.since_last(2).sleeps == 0));
    }

    #[test]
    fn time_that_the_thread_ran_is_no_time_that_it_waited() {
        let began = std::time::Instant::now();
        // The scheduler updates its account at its ticks, and when it is asked for the thread's processor time.
        let processor_time = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let _ = processor_time();
        let mut reader = UsageReader::new(0);
        let mut sum = 0u64;
        let mut ran = Usage::default();
        ringway_testing::until("the thread has run for 20 ms", || {
            (0..100_000).for_each(|n| sum = std::hint::black_box(sum.wrapping_add(n)));
            let more = reader.since_last(0);
            ran = Usage { ran: ran.ran + more.ran, waited: ran.waited + more.waited, ..ran };
            ran.ran >= 20_000_000
        });
        let wall = began.elapsed().as_nanos() as u64;
        // However long the thread had no processor, both times lie within the whole. The kernel's two clocks differ by less than that.
        assert!(ran.ran + ran.waited <= wall + wall / 64, "{ran:?} in {wall} ns");
    }
}
