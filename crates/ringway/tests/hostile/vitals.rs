//! The resources of the machine that a daemon holds.

use std::fs;

/// Growth of the daemon's own memory that is no leak: allocator's slack, a larger topology once seen.
const SLACK_KIB: u64 = 4096;

/// Read from `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// Memory of its own in KiB.
    pub anonymous: u64,
    /// Clients' memory that it has touched, in KiB.
    pub shared: u64,
    pub descriptors: usize,
    pub threads: u64,
    /// Memory files mapped: one per attached client.
    pub memories: usize,
}

impl Vitals {
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon should live");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("a field of /proc/PID/status");
            line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
        };
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the daemon should live");
        Self {
            anonymous: field("RssAnon:"),
            shared: field("RssShmem:"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).expect("the daemon should live").count(),
            threads: field("Threads:"),
            memories: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
    }

    /// Whether this is not more than `before`, but for the slack.
    pub fn is_back_at(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.memories <= before.memories
            && self.shared <= before.shared + SLACK_KIB / 4
            && self.anonymous <= before.anonymous + SLACK_KIB
    }
}

/// Processor time of a process so far, in clock ticks of 10 ms: the whole process, or one thread.
pub fn ticks(path: &str) -> u64 {
    let stat = fs::read_to_string(path).expect("the daemon should live");
    // The name in parentheses may hold anything.
    let after = stat.rsplit_once(')').expect("a name").1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    // utime and stime are fields 14 and 15, of which the first after the name is 3.
    [11, 12].map(|at| fields[at].parse::<u64>().expect("a number")).iter().sum()
}
