//! DPDK's testpmd: another project's drivers and devices.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::PATIENCE;

/// A testpmd that runs; ended when dropped.
pub struct Testpmd {
    child: Child,
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
        assert!(Path::new("/usr/bin/dpdk-testpmd").exists(), "dpdk-testpmd is not there: make deps installs it");
        let mut child = command.spawn().unwrap();
        let (send, said) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
        Testpmd { _input: child.stdin.take().unwrap(), child, said }
    }

    /// Waits for a line that holds this, and gives it.
    pub fn says(&mut self, wanted: &str) -> String {
        let (deadline, mut heard) = (Instant::now() + 3 * PATIENCE, Vec::new());
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

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
