//! DPDK's testpmd as a generator: two virtio-net drivers (`virtio_user`). Each sends every frame that it receives back to the other
//! through the switch under test.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use ringway_traffic::Mac;

use crate::child::Program;
use crate::network::SENDER;
use crate::patience::PATIENCE;
use crate::peers::hugepages::HugePages;
use crate::peers::testpmd;
use crate::peers::vhost::VhostSwitch;
use crate::placement::Cores;
use crate::scratch::Scratch;
use crate::trial::Contestant;

/// Memory for its default number of packet buffers (165,000 of 2,432 bytes), in MiB.
const DEFAULT_MIB: usize = 640;

/// Options of the drivers.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    /// Packed rings rather than split ones.
    pub packed: bool,
    /// True to accept use in order, if the device offers it: testpmd's default.
    pub in_order: bool,
    /// Descriptors of each ring.
    pub size: usize,
    /// Packet buffers of testpmd; `None`: its default number, which no cache holds.
    pub buffers: Option<usize>,
}

/// Frames that circulate through a switch.
pub struct VirtioUser<S> {
    // Dropped, and so ended, before the switch whose ports it drives.
    program: Program,
    input: ChildStdin,
    log: PathBuf,
    /// Bytes of the log that have been read.
    heard: usize,
    switch: S,
    _scratch: Scratch,
    _pages: Option<HugePages>,
}

impl<S: VhostSwitch> VirtioUser<S> {
    /// Starts the generator on its core and lets 1,024 frames of 64 bytes circulate in each direction. Both programs are held
    /// when this returns.
    ///
    /// # Errors
    /// testpmd is not installed or does not start, or no frame gets round.
    pub fn start(cores: Cores, mut switch: S, rings: Rings) -> io::Result<VirtioUser<S>> {
        switch.resume()?;
        let scratch = Scratch::new("virtio-user")?;
        let log = scratch.path("log");
        let mib = if rings.buffers.is_some() { testpmd::MEMORY_MIB } else { DEFAULT_MIB };
        let pages = HugePages::reserve(mib);
        let mut command = testpmd::command(&format!("0@{0},1@{0}", cores.generator), pages.is_some(), mib)?;
        let mac = |number: usize| Mac::local(SENDER + number as u32);
        for (number, socket) in switch.sockets().iter().enumerate() {
            let Rings { packed, in_order, size, .. } = rings;
            let (packed, in_order) = (u8::from(packed), u8::from(in_order));
            command.arg(format!(
                "--vdev=net_virtio_user{number},mac={},path={},queue_size={size},packed_vq={packed},in_order={in_order}",
                mac(number),
                socket.display()
            ));
        }
        command.args(["--", "-i", "--forward-mode=mac"]);
        command.args(rings.buffers.map(|buffers| format!("--total-num-mbufs={buffers}")));
        let mut program = testpmd::start(&mut command, &log, cores)?;
        let input = program.child().stdin.take().ok_or_else(|| io::Error::other("dpdk-testpmd has no input"))?;
        let mut generator = VirtioUser { program, input, log, heard: 0, switch, _scratch: scratch, _pages: pages };
        generator.order(&format!("set eth-peer 0 {}", mac(1)))?;
        generator.order(&format!("set eth-peer 1 {}", mac(0)))?;
        generator.circulate()?;
        generator.hold()?;
        Ok(generator)
    }

    fn order(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input, "{line}")
    }

    /// Sends frames until they come round: a switch that has just started may lose the first.
    fn circulate(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.order("stop")?;
            self.order("start tx_first 32")?;
            self.rates()?;
            std::thread::sleep(Duration::from_millis(20));
            if self.rates()? > 0.0 {
                return Ok(());
            }
        }
        Err(io::Error::other("no frame comes round"))
    }

    /// Returns the frames per second that both drivers received together since the last call.
    fn rates(&mut self) -> io::Result<f64> {
        self.heard = fs::metadata(&self.log)?.len() as usize;
        self.order("show port stats all")?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let said = fs::read(&self.log)?;
            let said = String::from_utf8_lossy(said.get(self.heard..).unwrap_or_default());
            if let Some(rate) = received(&said) {
                return Ok(rate);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::other(format!("dpdk-testpmd does not answer: {}", last_line(&self.log))))
    }
}

/// The sum of the two `Rx-pps` figures, when both are there.
fn received(said: &str) -> Option<f64> {
    let figures = said.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "Rx-pps:");
        words.nth(1)?.parse::<f64>().ok()
    });
    let figures: Vec<f64> = figures.collect();
    (figures.len() == 2).then(|| figures.iter().sum())
}

fn last_line(log: &Path) -> String {
    let said = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().last().unwrap_or_default().to_owned()
}

impl<S: VhostSwitch> Contestant for VirtioUser<S> {
    fn resume(&mut self) -> io::Result<()> {
        self.switch.resume()?;
        self.program.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.program.hold()?;
        self.switch.hold()
    }

    fn needs_its_core(&self) -> bool {
        // Another program uses the core.
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        std::thread::sleep(span / 8);
        self.rates()?;
        let start = Instant::now();
        // On a busy machine the switch may not have run at all in a short window.
        while start.elapsed() < PATIENCE {
            std::thread::sleep(span);
            let rate = self.rates()?;
            if rate > 0.0 {
                return Ok(rate / 1e6);
            }
        }
        Err(io::Error::other("no frame comes round any more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_both_ports_once_both_are_there() {
        let one = "  Throughput (since last show)\n  Rx-pps:      8015149          Rx-bps:   4103756704\n";
        let half = "  Rx-pps:            1";
        assert_eq!(received(one), None);
        assert_eq!(received(&format!("{one}{half}")), None);
        assert_eq!(received(&format!("{one}{half}\n")), Some(8_015_150.0));
    }
}
