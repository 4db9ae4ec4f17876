//! How threads behave towards others that need the same processors.

/// From now on the calling thread takes a processor that is free, or waits until whoever runs there has had its turn
/// (`SCHED_BATCH`, sched(7)). Otherwise one that is woken interrupts who runs: mostly the guest that woke it, which would have sent
/// more meanwhile. Where somebody chose another policy for this process, it stays.
pub fn wait_for_turns() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters live as long as the call. If it fails, all stays as it was.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
        }
    }
}
