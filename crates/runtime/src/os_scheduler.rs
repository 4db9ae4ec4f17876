//! Batch scheduling: the kernel's scheduling policy of threads without a processor of their own.
//!
//! A poller without a core of its own, and the thread of an e1000 port, run under `SCHED_BATCH`: when woken, they do
//! not preempt the running thread. A thread under the default policy preempts it: usually the guest that woke the
//! poller and has more to send. Guests under TCG have 1.2 to 1.5 times the TCP throughput with `SCHED_BATCH`. The
//! price: if all processors are busy, a frame may wait for one time slice (some milliseconds). Measurements:
//! `docs/decisions/scheduling-class.md`.

/// Puts the calling thread under `SCHED_BATCH` (sched(7)): a woken thread runs on a free processor, or waits for its
/// time slice. A policy other than `SCHED_OTHER`, which was chosen for this process, stays.
pub fn use_batch_scheduling() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters outlive the call. A call that fails changes nothing.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
        }
    }
}
