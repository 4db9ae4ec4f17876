//! The machine's resources that a daemon holds.

use std::fs;

/// Growth of the daemon's own memory that does not count as a leak: the allocator's slack, space for a larger topology.
const SLACK_KIB: u64 = 4096;

/// The resources of a daemon, as read from `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// The daemon's own memory in KiB.
    pub anonymous: u64,
    /// Clients' memory that the daemon has touched, in KiB.
    pub shared: u64,
    pub descriptors: usize,
    pub threads: u64,
    /// Memory files mapped: one per attached client.
    pub memories: usize,
}

impl Vitals {
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon is alive");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("a field of /proc/PID/status");
            line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
        };
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the daemon is alive");
        Self {
            anonymous: field("RssAnon:"),
            shared: field("RssShmem:"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).expect("the daemon is alive").count(),
            threads: field("Threads:"),
            memories: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
    }

    /// Returns true if this is at most `before`, with the slack.
    pub fn is_back_at(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.memories <= before.memories
            && self.shared <= before.shared + SLACK_KIB / 4
            && self.anonymous <= before.anonymous + SLACK_KIB
    }
}

/// Returns the used processor time of a process or a thread, in clock ticks of 10 ms.
pub fn ticks(path: &str) -> u64 {
    let stat = fs::read_to_string(path).expect("the daemon is alive");
    // The name in parentheses may contain any characters.
    let after = stat.rsplit_once(')').expect("a name").1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    // utime and stime are fields 14 and 15. The first field after the name is field 3.
    [11, 12].map(|at| fields[at].parse::<u64>().expect("a number")).iter().sum()
}
