//! The poller's system calls while both sides are busy, counted by strace.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringway_testing::child::Ended;
use ringway_testing::skip;
use ringway_testing::skip::is_installed;
use ringway_traffic::{
    Checker, FrameSpec, Frames, Level, Mac, Origin, ProcessEndpoint, Pump, PumpOptions, Station, Watch,
};
use rustix::process::Signal;

use crate::scene::turn;
use ringway_scenes::{Daemon, until};

/// Frames that must move. A system call for each pass, of 256 frames at most, would be four times [`MOST_CALLS`].
const FRAMES: u64 = 100_000;
const MOST_CALLS: u64 = 100;

/// The number of the first poller's thread.
fn poller(pid: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon lives");
    let poller = tasks
        .map_while(Result::ok)
        .find(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "poller0"));
    poller.and_then(|task| task.file_name().to_str()?.parse().ok()).expect("a poller")
}

/// Number of system calls in the summary of `strace -c`.
fn calls(summary: &str) -> u64 {
    let total = summary.lines().find(|line| line.ends_with("total"));
    // No table at all: not one call.
    total.map_or(0, |line| line.split_whitespace().nth(3).and_then(|n| n.parse().ok()).expect("the column of calls"))
}

/// `strace -c` at work on one thread.
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
            assert!(child.try_wait().expect("a child").is_none(), "strace should go on: may it trace here?");
            let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).expect("the poller lives");
            !status.contains("TracerPid:\t0\n")
        });
        Self { child, summary }
    }

    /// Ends it; gives its table.
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
    // The time that it goes on looking is long here: a generator that the machine holds up is no idle client.
    for engine in ["idle = \"spin\"", "idle = \"adaptive\"\nspin = \"1s\""] {
        let daemon = Daemon::start(&format!("[engine]\n{engine}\n"));
        let (a, b) = (Mac::local(1), Mac::local(2));
        let station = |name, own, peer, stream| {
            let spec =
                FrameSpec { source: own, destinations: vec![peer], stream: Some(stream), ..FrameSpec::default() };
            let endpoint = ProcessEndpoint::new(daemon.attach(name).expect("let in"));
            Station::both(endpoint, Frames::new(&spec).expect("valid"), Checker::new(Level::Sequence, Origin::Zero))
        };
        let mut pump = Pump::new([station("lan0:a", a, b, 1), station("lan0:b", b, a, 2)], PumpOptions::default());
        pump.run(Duration::from_millis(200), &mut Watch::none()).expect("the ports stay");

        let thread = poller(daemon.pid());
        let strace = Strace::attach(daemon.pid(), thread);
        let (start, mut moved) = (Instant::now(), 0);
        while moved < FRAMES {
            let before = moved;
            until("frames move", || {
                let run = pump.run(Duration::from_millis(100), &mut Watch::none()).expect("the ports stay");
                moved += run.received.frames;
                moved > before
            });
        }
        let summary = strace.finish();
        println!("{moved} frames in {:?}:\n{summary}", start.elapsed());
        assert!(calls(&summary) < MOST_CALLS, "{moved} frames took:\n{summary}");

        // What is counted would show: ports that come and go take calls.
        let strace = Strace::attach(daemon.pid(), thread);
        for number in 0..5 {
            let port = daemon.attach(&format!("lan0:c{number}")).expect("let in");
            // A port that is gone before the poller looks is never seen by it.
            let mut moved = 0;
            until("the poller serves it", || {
                moved +=
                    pump.run(Duration::from_millis(50), &mut Watch::none()).expect("the ports stay").received.frames;
                moved > 10_000
            });
            drop(port);
        }
        assert!(calls(&strace.finish()) > 0, "strace should count calls");
    }
}
