//! What happened to a poller's thread while it was at work: asked when a visit took too long.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What a thread has gone through until some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Nanoseconds that it ran.
    pub(crate) ran: u64,
    /// Nanoseconds that it was ready to run and had no processor.
    pub(crate) waited: u64,
    /// Page faults.
    pub(crate) faults: u64,
    /// Times that it gave its processor up to wait for something.
    pub(crate) sleeps: u64,
}

impl Account {
    /// Whether it may have slept in a page fault.
    pub(crate) fn stalled(&self) -> bool {
        self.faults > 0 && self.sleeps > 0
    }
}

/// Knows what the calling thread goes through. Belongs to that thread.
#[derive(Debug)]
pub(crate) struct Witness {
    schedstat: Option<File>,
    last: Account,
    /// When it looked last.
    at: u64,
}

impl Witness {
    /// For the calling thread, at `now`.
    pub(crate) fn new(now: u64) -> Witness {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let mut witness = Witness { schedstat, last: Account::default(), at: now };
        witness.since(now);
        witness
    }

    /// When it looked last.
    #[inline]
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// What the thread went through since the last look. Where its times cannot be had it counts as having waited all the time if
    /// it lost its processor, and as having run all the time.
    #[cold]
    pub(crate) fn since(&mut self, now: u64) -> Account {
        let account = self.account();
        let last = std::mem::replace(&mut self.last, account);
        self.at = now;
        let waited = account.waited.saturating_sub(last.waited);
        let faults = account.faults.saturating_sub(last.faults);
        let sleeps = account.sleeps.saturating_sub(last.sleeps);
        match self.schedstat {
            Some(_) => Account { ran: account.ran.saturating_sub(last.ran), waited, faults, sleeps },
            None => Account { ran: u64::MAX, waited: if waited > 0 { u64::MAX } else { 0 }, faults, sleeps },
        }
    }

    fn account(&self) -> Account {
        // SAFETY: the structure is valid when zeroed, and lives as long as the call that fills it.
        let (faults, sleeps, switches) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            (usage.ru_minflt.wrapping_add(usage.ru_majflt), usage.ru_nvcsw, usage.ru_nivcsw)
        };
        let times = self.schedstat.as_ref().and_then(times);
        let (ran, waited) = times.unwrap_or((0, u64::try_from(switches).unwrap_or(0)));
        let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
        Account { ran, waited, faults: count(faults), sleeps: count(sleeps) }
    }
}

/// Nanoseconds that the thread ran and that it waited: the first two numbers (proc(5)).
fn times(schedstat: &File) -> Option<(u64, u64)> {
    let mut text = [0; 96];
    let len = schedstat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use ringway_memory::Mapping;

    use super::*;

    #[test]
    fn page_faults_are_seen_and_only_new_ones() {
        let mut witness = Witness::new(0);
        let mapping = Mapping::private(16 << 12).expect("memory");
        for page in 0..16 {
            mapping.view(page << 12, 8).expect("inside").put(0, &[1; 8]);
        }
        let seen = witness.since(7);
        assert!(seen.faults >= 1, "{seen:?}");
        assert_eq!(witness.at(), 7);
        // Nothing new is touched between these two.
        let (first, second) = (witness.since(8), witness.since(9));
        assert!(second.faults <= first.faults.max(1), "{first:?} {second:?}");
    }

    #[test]
    fn sleeps_are_seen_and_only_new_ones() {
        let mut witness = Witness::new(0);
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(witness.since(1).sleeps >= 1);
        // Nothing is waited for between two of these, but for what the kernel waits for itself.
        assert!((0..10).any(|_| witness.since(2).sleeps == 0));
    }

    #[test]
    fn time_that_the_thread_ran_is_no_time_that_it_waited() {
        let mut witness = Witness::new(0);
        let began = std::time::Instant::now();
        let mut sum = 0u64;
        let mut ran = Account::default();
        while ran.ran < 20_000_000 && began.elapsed().as_secs() < 60 {
            (0..100_000).for_each(|n| sum = std::hint::black_box(sum.wrapping_add(n)));
            let more = witness.since(0);
            ran = Account { ran: ran.ran + more.ran, waited: ran.waited + more.waited, ..ran };
        }
        let wall = began.elapsed().as_nanos() as u64;
        assert!(ran.ran >= 20_000_000, "{ran:?}");
        // The scheduler brings its account up to date at its ticks.
        assert!(ran.ran + ran.waited <= wall + 40_000_000, "{ran:?} in {wall} ns");
    }
}
