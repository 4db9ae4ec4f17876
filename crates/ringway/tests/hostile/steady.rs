//! The poller's system calls while both sides are busy, counted by strace.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringway_scenes::{Daemon, until};
use ringway_testing::child::Ended;
use ringway_testing::skip;
use ringway_testing::skip::is_installed;
use ringway_traffic::{
    Checker, FrameSpec, Frames, Level, Mac, Origin, ProcessEndpoint, Pump, PumpOptions, Station, Watch,
};
use rustix::process::Signal;

use crate::scene::turn;

/// Number of frames that must be forwarded.
const FRAMES: u64 = 100_000;
/// Least frames per system call. A pass has at most 256 frames, so one call per pass would be four times too many.
const FRAMES_A_CALL: u64 = 1024;

/// Most system calls of a poller that gets its processor back.
const CALLS_A_PREEMPTION: u64 = 4;

/// Returns how often another thread took the processor of a thread. What the thread gives up itself, also for strace, does not count.
fn times_preempted(pid: u32, thread: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).expect("the poller lives");
    let times = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    times.and_then(|times| times.trim().parse().ok()).expect("a field of /proc/PID/task/TID/status")
}

/// Returns the thread id of the first poller.
fn poller(pid: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon lives");
    let poller = tasks
        .map_while(Result::ok)
        .find(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "poller0"));
    poller.and_then(|task| task.file_name().to_str()?.parse().ok()).expect("a poller")
}

/// Returns the number of system calls in the summary of `strace -c`.
fn calls(summary: &str) -> u64 {
    let total = summary.lines().find(|line| line.ends_with("total"));
    // A summary without a table has no calls.
    total.map_or(0, |line| line.split_whitespace().nth(3).and_then(|n| n.parse().ok()).expect("the column of calls"))
}

/// A running `strace -c` of one thread.
struct Strace {
    child: Ended,
    summary: tempfile::NamedTempFile,
}

impl Strace {
    fn attach(pid: u32, thread: u32) -> Self {
        let summary = tempfile::NamedTempFile::new().expect("a file");
        let mut command = Command::new("strace");
        command.args(["-c", "-p", &thread.to_string(), "-o"]).arg(summary.path()).stderr(Stdio::null());
        let mut child = Ended(command.spawn().expect("strace starts"));
        until("strace is attached", || {
            assert!(child.try_wait().expect("a child").is_none(), "strace has ended: is tracing permitted here?");
            let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).expect("the poller lives");
            !status.contains("TracerPid:\t0\n")
        });
        Self { child, summary }
    }

    /// Ends strace. Returns its summary.
    fn finish(mut self) -> String {
        self.child.signal(Signal::INT);
        self.child.end();
        fs::read_to_string(self.summary.path()).expect("strace wrote it")
    }
}

#[test]
fn a_busy_poller_makes_no_system_calls() {
    let _turn = turn();
    if !is_installed("strace") {
        skip!("needs strace");
    }
    // The poller polls for a long time before it sleeps, because a delayed generator is no idle client.
    for engine in ["idle = \"spin\"", "idle = \"adaptive\"\nspin = \"1s\""] {
        let daemon = Daemon::start(&format!("[engine]\n{engine}\n"));
        let (a, b) = (Mac::local(1), Mac::local(2));
        let station = |name, own, peer, stream| {
            let spec =
                FrameSpec { source: own, destinations: vec![peer], stream: Some(stream), ..FrameSpec::default() };
            let endpoint = ProcessEndpoint::new(daemon.attach(name).expect("a port"));
            Station::both(endpoint, Frames::new(&spec).expect("valid"), Checker::new(Level::Sequence, Origin::Zero))
        };
        let mut pump = Pump::new([station("lan0:a", a, b, 1), station("lan0:b", b, a, 2)], PumpOptions::default());
        pump.run(Duration::from_millis(200), &mut Watch::none()).expect("the ports stay");

        let thread = poller(daemon.pid());
        // When another thread had the poller's processor, the poller reads the times of its thread. One window of several must pass: a
        // poller goes to sleep in others, while the generator has no processor.
        until("a busy poller makes almost no system calls", || {
            let strace = Strace::attach(daemon.pid(), thread);
            let before = times_preempted(daemon.pid(), thread);
            let (start, mut moved) = (Instant::now(), 0);
            while moved < FRAMES {
                let before = moved;
                until("frames move", || {
                    let run = pump.run(Duration::from_millis(100), &mut Watch::none()).expect("the ports stay");
                    moved += run.received.frames;
                    moved > before
                });
            }
            let preempted = times_preempted(daemon.pid(), thread) - before;
            let summary = strace.finish();
            println!("{moved} frames in {:?}, preempted {preempted} times:\n{summary}", start.elapsed());
            calls(&summary) < moved / FRAMES_A_CALL + CALLS_A_PREEMPTION * preempted
        });

        // Checks that calls are counted: attaching and detaching ports takes calls.
        let strace = Strace::attach(daemon.pid(), thread);
        for number in 0..5 {
            let port = daemon.attach(&format!("lan0:c{number}")).expect("a port");
            // The poller does not see a port that is gone before its next pass.
            let mut moved = 0;
            until("the poller serves it", || {
                moved +=
                    pump.run(Duration::from_millis(50), &mut Watch::none()).expect("the ports stay").received.frames;
                moved > 10_000
            });
            drop(port);
        }
        assert!(calls(&strace.finish()) > 0, "strace counts no calls");
    }
}
