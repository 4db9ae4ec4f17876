//! The machine and the build of a measurement.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::placement::Cores;

/// The machine, the program and the time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Processors this machine has.
    pub processors: usize,
    /// True in a virtual machine.
    #[serde(default)]
    pub is_virtual: bool,
    /// Memory, in MiB; 0 where it is not known.
    #[serde(default)]
    pub memory_mib: usize,
    /// The two that were used.
    pub cores: Cores,
    /// Version of the `ringway` program that was measured.
    pub version: String,
    /// Commit that it was built from; `None` where it was not built in a git checkout.
    pub commit: Option<String>,
    /// When the run started (RFC 3339, UTC).
    pub date: String,
}

impl Machine {
    /// Describes this machine, now, and the build of `program`.
    ///
    /// # Errors
    /// `program` cannot be run, or is no `ringway`.
    pub fn describe(cores: Cores, program: &Path) -> io::Result<Machine> {
        let (version, commit) = build_of(program)?;
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
        let has_flag = |line: &str| line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor");
        Ok(Machine {
            cpu: cpu.trim_start_matches([' ', '\t', ':']).to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            is_virtual: cpuinfo.lines().any(has_flag),
            memory_mib: memory_mib().unwrap_or(0),
            cores,
            version,
            commit,
            date: rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
        })
    }
}

/// Returns the machine's memory.
fn memory_mib() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

/// Returns the version and the commit that `program --version` tells.
fn build_of(program: &Path) -> io::Result<(String, Option<String>)> {
    let named = |error: &dyn std::fmt::Display| io::Error::other(format!("{} --version: {error}", program.display()));
    let output = Command::new(program).arg("--version").output().map_err(|error| named(&error))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    read_version(&said).ok_or_else(|| named(&format!("this is not what ringway says: {said:?}")))
}

/// Reads `ringway VERSION (COMMIT)`.
fn read_version(said: &str) -> Option<(String, Option<String>)> {
    let mut words = said.trim().strip_prefix("ringway ")?.split(' ');
    let version = words.next()?.to_owned();
    let commit = words.next().map(|commit| commit.trim_matches(['(', ')']).to_owned());
    Some((version, commit))
}

/// Seconds since 1970 as a date in the proleptic Gregorian calendar.
fn rfc3339(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86400, seconds % 86400);
    let mut year = 1970;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

/// Returns true if no thread of the process runs, as SIGSTOP has it.
///
/// # Errors
/// There is no such process.
pub fn is_stopped(process: Pid) -> io::Result<bool> {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()))?;
    let state = |thread: io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    Ok(threads.filter_map(state).all(|state| state == 'T'))
}

/// Returns the process of this name whose parent is `parent`, and which has not begun to end.
///
/// # Errors
/// There is none.
pub fn child_named(parent: u32, name: &str) -> io::Result<Pid> {
    let first = children_named(parent, name)?.into_iter().next();
    first.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {parent} has no child {name}")))
}

/// Returns all of them.
///
/// # Errors
/// There is no `/proc`.
pub fn children_named(parent: u32, name: &str) -> io::Result<Vec<Pid>> {
    let child = |entry: io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        // The name in parentheses may hold anything.
        let (before, after) = stat.rsplit_once(") ")?;
        let (process, its_name) = before.split_once(" (")?;
        let fields: Vec<&str> = after.split(' ').take(7).collect();
        let (its_parent, flags) = (fields.get(1)?.parse::<u32>().ok()?, fields.get(6)?.parse::<u64>().ok()?);
        // PF_EXITING: it executes nothing any more.
        let is_meant = its_name == name && its_parent == parent && flags & 4 == 0;
        is_meant.then(|| process.parse().ok().and_then(Pid::from_raw))?
    };
    Ok(fs::read_dir("/proc")?.filter_map(child).collect())
}

/// Returns how often this thread was preempted so far; 0 where the kernel does not tell.
#[must_use]
pub fn times_preempted() -> u64 {
    times_preempted_by("/proc/thread-self/status")
}

/// Returns how often the first thread of a process was preempted so far; 0 where the kernel does not tell.
#[must_use]
pub fn times_preempted_of(process: u32) -> u64 {
    times_preempted_by(&format!("/proc/{process}/status"))
}

fn times_preempted_by(status: &str) -> u64 {
    let status = fs::read_to_string(status).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Returns the CPU time that a process has used. Threads that run now have used more.
///
/// # Errors
/// There is no such process, or the kernel does not tell.
pub fn cpu_time_of(process: u32) -> io::Result<Duration> {
    let mut time = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may have ended meanwhile. The first number is the time in nanoseconds.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
        time += Duration::from_nanos(nanoseconds.ok_or(io::ErrorKind::Unsupported)?);
    }
    Ok(time)
}

/// Counter of how often a thread lost its core and got one. While the count does not change, the thread runs all the time, or not at
/// all. A reading is cheap.
pub struct ContextSwitches {
    status: File,
    schedstat: Option<File>,
    text: Vec<u8>,
}

impl ContextSwitches {
    /// Of the thread that asks.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn of_this_thread() -> io::Result<ContextSwitches> {
        ContextSwitches::open(Path::new("/proc/thread-self"))
    }

    /// Of the thread called `name` of process `process`.
    ///
    /// # Errors
    /// There is no such thread.
    pub fn of(process: u32, name: &str) -> io::Result<ContextSwitches> {
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            if fs::read_to_string(thread.join("comm"))?.trim() == name {
                return ContextSwitches::open(&thread);
            }
        }
        Err(io::Error::other(format!("process {process} has no thread {name}")))
    }

    fn open(thread: &Path) -> io::Result<ContextSwitches> {
        let schedstat = File::open(thread.join("schedstat")).ok();
        Ok(ContextSwitches { status: File::open(thread.join("status"))?, schedstat, text: vec![0; 8192] })
    }

    /// Returns the count so far, as far as the kernel tells.
    pub fn count(&mut self) -> u64 {
        let ContextSwitches { status, schedstat, text } = self;
        let mut read = |file: &File| {
            let len = file.read_at(text, 0).unwrap_or(0);
            String::from_utf8_lossy(&text[..len]).into_owned()
        };
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        let status = read(status);
        let lost = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:")).map_or(0, number);
        // The third number is how often it was given a core (Documentation/scheduler/sched-stats).
        let got = schedstat.as_ref().map(read).and_then(|text| text.split(' ').nth(2).map(number));
        lost + got.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn the_build_of_a_program_is_read_from_its_version() {
        let told = |said: &str| read_version(said);
        assert_eq!(told("ringway 0.1.0 (e7b9ff9)\n"), Some(("0.1.0".into(), Some("e7b9ff9".into()))));
        assert_eq!(told("ringway 0.1.0\n"), Some(("0.1.0".into(), None)));
        assert_eq!(told("ls (GNU coreutils) 9.1\n"), None);
        assert!(build_of(Path::new("/no/such/ringway")).unwrap_err().to_string().contains("/no/such/ringway"));
    }

    #[test]
    fn a_thread_is_found_by_its_name_and_counts_its_turns() {
        let named = std::thread::Builder::new().name("named".into()).spawn(|| {
            let mut turns = ContextSwitches::of(std::process::id(), "named").unwrap();
            let before = turns.count();
            let is_own = before <= ContextSwitches::of_this_thread().unwrap().count();
            // A thread that sleeps gets a core when it wakes.
            ringway_testing::until("it has another turn", || {
                std::thread::sleep(std::time::Duration::from_millis(1));
                turns.count() > before
            });
            is_own
        });
        assert!(named.unwrap().join().unwrap());
        assert!(ContextSwitches::of(std::process::id(), "nobody").is_err());
    }
}
