//! DPDK's testpmd with an XDP socket (`net_af_xdp`) at the near end of a cable: it makes frames, takes them, or passes them between the
//! cable and a vhost-user port. It does not switch.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::child::Program;
use crate::patience::PATIENCE;
use crate::peers::cable::{Cable, WIRE};
use crate::peers::hugepages::HugePages;
use crate::peers::netns;
use crate::peers::program::find_program;
use crate::peers::testpmd::{MEMORY_MIB, command, start};
use crate::peers::vhost::VhostSwitch;
use crate::placement::Cores;
use crate::scratch::Scratch;

/// Packet buffers.
const BUFFERS: usize = 16384;
/// Socket of the vhost-user port.
const SOCKET: &str = "p0";

/// What testpmd does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Makes frames of this many bytes.
    Sends(usize),
    /// Takes frames.
    Receives,
    /// Gives the frames of the cable to a vhost-user port, and those of the port to the cable.
    Forwards,
}

/// A running testpmd.
pub struct TestpmdXdp {
    // Dropped, and so ended, before its folder is removed and its memory is returned.
    program: Program,
    scratch: Scratch,
    _pages: Option<HugePages>,
}

impl TestpmdXdp {
    /// Starts it, its forwarding thread on the switch's core.
    ///
    /// # Errors
    /// testpmd or `nsenter` is not installed, or testpmd does not start.
    pub fn start(cores: Cores, cable: &Cable, work: Work) -> io::Result<TestpmdXdp> {
        let scratch = Scratch::new("testpmd-xdp")?;
        let pages = HugePages::reserve(MEMORY_MIB);
        let inner = command(&format!("0@{},1@{}", cores.generator, cores.switch), pages.is_some(), MEMORY_MIB)?;
        let nsenter = find_program("nsenter").ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "nsenter is not installed (Debian: apt-get install util-linux)")
        })?;
        let [near, _] = cable.hosts();
        let mut command = Command::new(nsenter);
        command.arg(format!("--net={}", netns::path(near).display())).arg(inner.get_program()).args(inner.get_args());
        command.arg(format!("--vdev=net_af_xdp0,iface={WIRE}"));
        if work == Work::Forwards {
            command.arg(format!("--vdev=net_vhost0,iface={},queues=1", scratch.path(SOCKET).display()));
        }
        command.args(["--", "-i", "--auto-start", &format!("--total-num-mbufs={BUFFERS}")]);
        match work {
            Work::Sends(len) => command.args(["--forward-mode=txonly", &format!("--txpkts={len}")]),
            Work::Receives => command.arg("--forward-mode=rxonly"),
            Work::Forwards => command.arg("--forward-mode=io"),
        };
        let program = start(&mut command, &scratch.path("log"), cores)?;
        Ok(TestpmdXdp { program, scratch, _pages: pages })
    }

    fn log(&self) -> PathBuf {
        self.scratch.path("log")
    }

    /// Returns the number of frames that it has taken.
    ///
    /// # Errors
    /// It does not answer.
    pub fn received(&mut self) -> io::Result<u64> {
        let before = fs::metadata(self.log())?.len() as usize;
        let input = self.program.child().stdin.as_mut().ok_or_else(|| io::Error::other("dpdk-testpmd has no input"))?;
        input.write_all(b"show port stats 0\n")?;
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            let said = fs::read(self.log())?;
            let answer = String::from_utf8_lossy(said.get(before..).unwrap_or_default()).into_owned();
            if let Some(frames) = received_of(&answer) {
                return Ok(frames);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "dpdk-testpmd does not show its counters"))
    }
}

impl VhostSwitch for TestpmdXdp {
    fn sockets(&self) -> Vec<PathBuf> {
        vec![self.scratch.path(SOCKET)]
    }

    fn hold(&mut self) -> io::Result<()> {
        self.program.hold()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.program.resume()
    }
}

/// Reads the received frames of a whole answer.
fn received_of(answer: &str) -> Option<u64> {
    let (_, counters) = answer.split_once("RX-packets:")?;
    let (counters, _) = counters.split_once("Throughput")?;
    counters.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_read_of_a_whole_answer_only() {
        let answer = "show port stats 0\n  RX-packets: 123        RX-missed: 4   RX-bytes:  5\n";
        assert_eq!(received_of(answer), None);
        assert_eq!(received_of(&format!("{answer}\n  Throughput (since last show)\n")), Some(123));
    }
}
