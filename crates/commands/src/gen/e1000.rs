//! The driver of an e1000: `--e1000`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ringway_traffic::{E1000Endpoint, E1000Error, E1000Mode, E1000Options};

use super::attached::AnyPort;
use super::parse;
use super::report::GenError;

/// What the driver of an e1000 can be told.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Driver options")]
pub struct E1000Args {
    /// Drive the e1000 of the vfio-user server at this socket, instead of a process port
    #[arg(long, value_name = "SOCKET")]
    pub e1000: Vec<PathBuf>,
    /// When registers are touched
    #[arg(long, value_enum, default_value_t = Mode::Moderated, requires = "e1000")]
    e1000_mode: Mode,
    /// Least time between two interrupts, but with --e1000-mode base or each [default: 250us]
    #[arg(long, value_name = "TIME", requires = "e1000", value_parser = parse::positive)]
    e1000_interval: Option<Duration>,
}

/// When registers are touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// A tail write for each frame, an interrupt for each event
    Base,
    /// As base on a guest's only processor: the interrupt of each frame sent is taken before the next
    Each,
    /// A tail write for each frame, interrupts no closer than --e1000-interval
    Moderated,
    /// Moderated, and while an interrupt is to come frames wait for it
    Combining,
    /// Moderated, and a communication status block: no register is touched while the device works
    Csb,
    /// Moderated, and ring registers as memory: only of an e1000e
    Mapped,
}

impl E1000Args {
    /// Becomes the driver of the device at `socket`.
    pub fn attach(&self, socket: &Path, tx_ring: u32, rx_ring: u32, buffer_size: u32) -> Result<AnyPort, GenError> {
        let mode = match self.e1000_mode {
            Mode::Base => E1000Mode::Base,
            Mode::Each => E1000Mode::Each,
            Mode::Moderated => E1000Mode::Moderated,
            Mode::Combining => E1000Mode::Combining,
            Mode::Csb => E1000Mode::Csb,
            Mode::Mapped => E1000Mode::Mapped,
        };
        let default = E1000Options::default();
        let interval = self.e1000_interval.unwrap_or(default.interval);
        let options = E1000Options { mode, interval, tx_ring, rx_ring, buffer_size, ..default };
        E1000Endpoint::attach(socket, &options).map(AnyPort::E1000).map_err(|error| match error {
            E1000Error::Options(_) | E1000Error::Lacks { .. } => GenError::Usage(error.to_string()),
            _ => GenError::Failed(error.to_string()),
        })
    }
}
