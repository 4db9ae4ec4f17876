//! Options of every command.

use std::path::PathBuf;

use ringway_control::runtime_dir;
use tracing_subscriber::EnvFilter;

use crate::context::Context;

/// Options of every command.
#[derive(Debug, clap::Args)]
pub struct Global {
    /// Directory of the daemon's sockets [default: /run/ringway for root, else $XDG_RUNTIME_DIR/ringway, else
    /// /tmp/ringway-UID]
    #[arg(long, global = true, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Say more on stderr; twice: everything. RUST_LOG overrides it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Global {
    /// Starts the log on stderr at the level that the options ask for.
    pub fn log_to_stderr(&self) {
        let level = match self.verbose {
            0 => "info",
            1 => "debug",
            _ => "trace",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    }

    /// The runtime directory: the one that was given, or the default.
    #[must_use]
    pub fn context(self) -> Context {
        let is_default_dir = self.runtime_dir.is_none();
        Context { is_default_dir, runtime_dir: self.runtime_dir.unwrap_or_else(runtime_dir::default_path) }
    }
}
