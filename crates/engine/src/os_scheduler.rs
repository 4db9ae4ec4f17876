//! Batch scheduling: the kernel's scheduling policy of threads without a processor of their own.
//!
//! A poller without a core of its own, and the thread of an e1000 port, run under `SCHED_BATCH`: they wait for their turn on
//! a busy processor. A thread under the default policy preempts the running thread when it is woken: mostly the guest that
//! woke it and has more to send. Guests under TCG have 1.2 to 1.5 times the TCP throughput with `SCHED_BATCH`. The price can
//! be a slice of the scheduler (some milliseconds) until a frame is seen where all processors are busy with something else.
//! Measurements: `docs/decisions/scheduling-class.md`.

/// Puts the calling thread under `SCHED_BATCH` (sched(7)): a woken thread takes a processor that is free, or waits for its turn.
/// Under `SCHED_OTHER`, a woken poller preempts the running thread: mostly the guest that woke it and would have
/// sent more. A policy other than `SCHED_OTHER`, which was chosen for this process, stays.
pub fn use_batch_scheduling() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters outlive the call. A call that fails changes nothing.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
        }
    }
}
