//! The calling thread's policy in the kernel's scheduler.

/// Puts the calling thread under `SCHED_BATCH` (sched(7)): a woken thread takes a processor that is free, or waits for its turn.
/// Under `SCHED_OTHER`, a woken poller preempts the running thread: mostly the guest that woke it and would have
/// sent more. A policy other than `SCHED_OTHER`, which somebody chose for this process, stays.
pub fn use_batch_scheduling() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters outlive the call. A call that fails changes nothing.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
        }
    }
}
