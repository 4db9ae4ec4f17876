//! A program as a contestant: on ports of a daemon, by `ringway exec`, or on devices of Linux.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::worker::Worker;
use crate::daemon::{Daemon, Settings};
use crate::network::Network as _;
use crate::patience::PATIENCE;
use crate::peers::veth::Veth;
use crate::placement::Cores;
use crate::trial::{Contestant, MOST_PREEMPTIONS};

/// A program on the generator's core, with the network that it drives: a daemon, or devices in a namespace that goes with it. The figure is in million frames per second.
pub(super) struct Driven {
    // Ended before its network.
    worker: Worker,
    daemon: Option<Daemon>,
    /// A program of one thread, which never sleeps: its windows count only while it has its core to itself.
    is_busy: bool,
    held_up: bool,
}

impl Driven {
    /// Starts a daemon, and the program with these arguments on ports of it. The daemon is held when this returns.
    ///
    /// # Errors
    /// One of them does not start: the message has what it wrote to its standard error.
    pub(super) fn on_ports(
        cores: Cores,
        settings: &Settings,
        program: &Path,
        words: &[impl AsRef<OsStr>],
    ) -> io::Result<Driven> {
        let mut daemon = Daemon::start(cores, settings)?;
        let worker = Worker::start(daemon.exec(program).args(words), cores.generator)?;
        daemon.hold()?;
        Ok(Driven { worker, daemon: Some(daemon), is_busy: true, held_up: false })
    }

    /// Starts the program with these arguments on new pairs of devices.
    ///
    /// # Errors
    /// As [`Driven::on_ports`]; not root.
    pub(super) fn on_veth(
        cores: Cores,
        pairs: &'static [(&'static str, &'static str)],
        program: &Path,
        words: &[impl AsRef<OsStr>],
    ) -> io::Result<Driven> {
        let veth = Veth::start(pairs)?;
        let worker = Worker::start(veth.command(program)?.args(words), cores.generator)?;
        Ok(Driven { worker, daemon: None, is_busy: true, held_up: false })
    }

    /// The program has threads that sleep.
    pub(super) fn sleeping(mut self) -> Driven {
        self.is_busy = false;
        self
    }
}

impl Contestant for Driven {
    fn resume(&mut self) -> io::Result<()> {
        self.daemon.as_mut().map_or(Ok(()), |daemon| daemon.resume())
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemon.as_mut().map_or(Ok(()), |daemon| daemon.hold())
    }

    fn needs_its_core(&self) -> bool {
        // This thread sleeps; `was_held_up` tells of the program.
        false
    }

    fn was_held_up(&self) -> bool {
        self.held_up
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        self.worker.work(span / 8)?;
        let start = Instant::now();
        // On a busy machine the switch may not have run at all in a short window.
        while start.elapsed() < PATIENCE {
            let before = self.worker.times_preempted();
            let work = self.worker.work(span)?;
            self.held_up = self.is_busy && self.worker.times_preempted() - before > MOST_PREEMPTIONS;
            if work.frames > 0 {
                return Ok(work.frames as f64 / work.seconds / 1e6);
            }
        }
        Err(io::Error::other("no frame got through"))
    }
}
