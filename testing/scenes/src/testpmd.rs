//! DPDK's testpmd: drivers and devices that are somebody else's.
// Every function is for tests: whatever goes wrong is a panic.
#![allow(clippy::missing_panics_doc)]

use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use ringway_testing::PATIENCE;
use ringway_testing::child::{Ended, lines};
use ringway_testing::skip::is_installed;
use rustix::thread::{CpuSet, sched_getaffinity};

/// A running testpmd; ended when dropped.
pub struct Testpmd {
    _child: Ended,
    /// It ends when this is closed.
    _input: ChildStdin,
    said: Receiver<String>,
}

impl Testpmd {
    /// Starts it with these devices and arguments of its own.
    pub fn start(devices: &[String], arguments: &[&str]) -> Testpmd {
        let allowed = sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
        let lcores = format!("0@{},1@{}", cpus[0], cpus[cpus.len() - 1]);
        // Its output is a pipe, and to come line by line.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd", "--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry"]);
        command.args(["--lcores", &lcores]);
        for device in devices {
            command.args(["--vdev", device]);
        }
        command.arg("--").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        assert!(is_installed("dpdk-testpmd"), "dpdk-testpmd is not there: make deps installs it");
        let mut child = Ended(command.spawn().unwrap());
        let said = lines(child.stdout.take().unwrap());
        Testpmd { _input: child.stdin.take().unwrap(), _child: child, said }
    }

    /// Waits for a line that holds this, and returns it.
    pub fn says(&mut self, wanted: &str) -> String {
        let (deadline, mut heard) = (Instant::now() + PATIENCE, Vec::new());
        loop {
            match self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(wanted) => return line,
                Ok(line) => heard.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("testpmd should say {wanted:?}: {}", heard.join("\n")),
                Err(RecvTimeoutError::Disconnected) => panic!("testpmd has ended: {}", heard.join("\n")),
            }
        }
    }
}
