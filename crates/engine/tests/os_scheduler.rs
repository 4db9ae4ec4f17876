//! The scheduling policy of pollers. One test only: it finds the poller's thread by its name.

#![cfg(not(loom))]

mod support;

use ringway_engine::{Engine, EngineSettings};
use ringway_runtime::use_batch_scheduling;

/// The scheduling policy of the only thread of this process with this name (proc_pid_stat(5), field 41).
fn policy(name: &str) -> i32 {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads").filter_map(Result::ok);
    let mut found =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok()).filter_map(|stat| {
            let (before, after) = stat.rsplit_once(')')?;
            let policy = after.split_whitespace().nth(38)?.parse().ok()?;
            before.ends_with(&format!("({name}")).then_some(policy)
        });
    let policy = found.next().unwrap_or_else(|| panic!("no thread is called {name}"));
    assert_eq!(found.next(), None, "several threads are called {name}");
    policy
}

#[test]
fn a_poller_without_a_core_of_its_own_preempts_no_running_thread_and_any_other_policy_stays() {
    for (cores, expected) in [(Vec::new(), libc::SCHED_BATCH), (support::cpus(1), libc::SCHED_OTHER)] {
        let engine = Engine::start(&EngineSettings { cores, ..EngineSettings::default() }).expect("a poller");
        assert_eq!(policy("poller0"), expected);
        drop(engine);
    }
    let chosen = std::thread::spawn(|| {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 is the calling thread; the parameters outlive the call. A thread may always choose SCHED_IDLE.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) };
        use_batch_scheduling();
        // SAFETY: 0 is the calling thread; the call only reads.
        unsafe { libc::sched_getscheduler(0) }
    });
    assert_eq!(chosen.join().expect("a thread"), libc::SCHED_IDLE);
}
