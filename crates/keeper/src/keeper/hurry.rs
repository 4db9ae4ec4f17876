//! A switch that takes the place of another one, and waited for that, has the processors before other programs for a moment, as clients wait. Where control groups
//! or sessions share the processors (cgroups(7), `CPUWeight=`; sched(7), autogroup), this counts within its group only.
//!
//! Only the switch: closers and compilers, which others start for it, may live longer than anyone knows of them.

use std::time::{Duration, Instant};

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// Its priority (nice(1)) until it serves.
const FIRST: i32 = -20;
/// Longest time. A switch with hundreds of ports serves after a tenth of it.
const HURRIES_FOR: Duration = Duration::from_secs(1);
/// Most looks at its threads: one may start another while they are looked at.
const LOOKS_MOST: usize = 4;

/// A switch that hurries. Dropped when its threads are to have the keeper's own priority again.
#[derive(Debug)]
pub(super) struct Hurry {
    switch: Pid,
    /// When it is over in any case.
    pub(super) until: Instant,
}

impl Hurry {
    /// Raises the priority of a switch that is a child of this process and has not ended. Threads that it starts later have it, too. `None`: the keeper may not.
    pub(super) fn begin(switch: Pid) -> Option<Self> {
        let raised = threads(switch).filter(|thread| setpriority_process(Some(*thread), FIRST).is_ok()).count();
        (raised > 0).then(|| Self { switch, until: Instant::now() + HURRIES_FOR })
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let own = getpriority_process(None).unwrap_or(0);
        // A thread that has gone back from the first priority by itself has one in between.
        let hurries = |thread: &Pid| getpriority_process(Some(*thread)).is_ok_and(|priority| priority < own);
        let slow = |thread: Pid| setpriority_process(Some(thread), own).is_ok();
        let _ =
            (0..LOOKS_MOST).find(|_| threads(self.switch).filter(hurries).filter(|thread| slow(*thread)).count() == 0);
    }
}

/// The threads of a process.
fn threads(process: Pid) -> impl Iterator<Item = Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    tasks.into_iter().flatten().filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
}
