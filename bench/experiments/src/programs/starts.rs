//! How long a program takes to start and to end.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::worker::Worker;
use crate::daemon::{Daemon, Settings};
use crate::network::Network as _;
use crate::placement::Cores;
use crate::trial::Contestant;

/// A program that starts another one again and again. The figure is in microseconds per start.
pub(super) struct Starts {
    // Ended before the daemon.
    worker: Worker,
    _daemon: Option<Daemon>,
}

impl Starts {
    /// As users start programs.
    ///
    /// # Errors
    /// The program does not start.
    pub(super) fn plain(cores: Cores, program: &Path) -> io::Result<Starts> {
        Ok(Starts { worker: Worker::start(&mut Command::new(program), cores.generator)?, _daemon: None })
    }

    /// With the libraries of `ringway exec`.
    ///
    /// # Errors
    /// The daemon or the program does not start.
    pub(super) fn by_exec(cores: Cores, settings: &Settings, program: &Path) -> io::Result<Starts> {
        let mut daemon = Daemon::start(cores, settings)?;
        daemon.hold()?;
        Ok(Starts { worker: Worker::start(&mut daemon.exec(program), cores.generator)?, _daemon: Some(daemon) })
    }
}

impl Contestant for Starts {
    fn needs_its_core(&self) -> bool {
        false
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let work = self.worker.work(span)?;
        Ok(work.seconds * 1e6 / work.frames as f64)
    }
}
