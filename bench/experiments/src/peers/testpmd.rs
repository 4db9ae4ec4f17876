//! DPDK's testpmd (Debian package dpdk-dev, in older releases dpdk) as a cross-connect of two vhost-user ports. It does not switch:
//! every frame of one port goes to the other (`io` mode), copied twice.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::Program;
use crate::patience::PATIENCE;
use crate::peers::hugepages::HugePages;
use crate::peers::program::find_program;
use crate::peers::vhost::VhostSwitch;
use crate::placement::Cores;
use crate::scratch::Scratch;

/// Its memory, in MiB, and the packet buffers in it.
pub(super) const MEMORY_MIB: usize = 256;
const BUFFERS: usize = 16384;

/// A running testpmd.
pub struct Testpmd {
    // Dropped, and so ended, before its folder is removed and its memory is returned.
    program: Program,
    scratch: Scratch,
    _pages: Option<HugePages>,
}

impl Testpmd {
    /// Starts the cross-connect, its forwarding thread on the switch's core.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(cores: Cores) -> io::Result<Testpmd> {
        let scratch = Scratch::new("testpmd")?;
        let device = |number| {
            let socket = scratch.path(&format!("p{number}"));
            format!("--vdev=net_vhost{number},iface={},queues=1", socket.display())
        };
        let pages = HugePages::reserve(MEMORY_MIB);
        let mut command = command(&format!("0@{},1@{}", cores.generator, cores.switch), pages.is_some(), MEMORY_MIB)?;
        command.arg(device(0)).arg(device(1));
        command.args(["--", "-i", "--forward-mode=io", "--auto-start", &format!("--total-num-mbufs={BUFFERS}")]);
        let program = start(&mut command, &scratch.path("log"), cores)?;
        Ok(Testpmd { program, scratch, _pages: pages })
    }
}

impl VhostSwitch for Testpmd {
    fn sockets(&self) -> Vec<PathBuf> {
        ["p0", "p1"].map(|name| self.scratch.path(name)).to_vec()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.program.hold()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.program.resume()
    }
}

/// Returns a testpmd with the threads of `lcores` ("thread@core,…", the first for commands) and this much memory, without devices and
/// modes.
///
/// # Errors
/// It is not installed.
pub(super) fn command(lcores: &str, huge_pages: bool, memory_mib: usize) -> io::Result<Command> {
    let program = find_program("dpdk-testpmd").ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "dpdk-testpmd is not installed (Debian: apt-get install dpdk dpdk-dev librte-meta-net librte-meta-mempool)",
        )
    })?;
    // Line by line, or what it writes to a file comes when it ends.
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(program);
    command.args(["--lcores", lcores, "--main-lcore=0", "--no-pci", "--no-telemetry", "--iova-mode=va"]);
    if huge_pages {
        command.args(["--in-memory", "--single-file-segments"]);
    } else {
        command.args(["--no-huge", "--no-shconf"]);
    }
    command.args(["-m", &memory_mib.to_string()]);
    Ok(command)
}

/// Starts testpmd and waits for its prompt. Its output goes to the file `log`.
///
/// # Errors
/// It ends, or there is no prompt. The message has the end of its output.
pub(super) fn start(command: &mut Command, log: &Path, cores: Cores) -> io::Result<Program> {
    let out = File::create(log)?;
    // The end of its standard input would be its own end.
    command.stdin(Stdio::piped()).stderr(out.try_clone()?).stdout(out);
    let mut program = Program::start_on(&[cores.generator, cores.switch], command)?;
    let start = Instant::now();
    loop {
        let said = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        if said.contains("testpmd> ") {
            return Ok(program);
        }
        if start.elapsed() > PATIENCE || program.child().try_wait()?.is_some() {
            let last: Vec<&str> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("; ");
            return Err(io::Error::other(format!("dpdk-testpmd does not start: {last}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
