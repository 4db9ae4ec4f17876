//! Options of every command.

use std::path::PathBuf;

use ringway_api::paths;
use ringway_commands::context::Context;
use ringway_daemon::log;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::journal::Lines;

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
    /// Logs to stderr at the level that the options ask for. The daemon's threads do not write it themselves; its lines wait for [`log::start`].
    pub fn log_to_stderr(&self, is_daemon: bool) {
        let level = match self.verbose {
            0 => LevelFilter::INFO,
            1 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let asked = std::env::var("RUST_LOG").ok().filter(|directives| !directives.trim().is_empty());
        let filter = asked.and_then(|directives| directives.parse::<Targets>().ok());
        let filter = filter.unwrap_or_else(|| Targets::new().with_default(level));
        let writer = if is_daemon {
            log::hold();
            BoxMakeWriter::new(log::stderr)
        } else {
            BoxMakeWriter::new(std::io::stderr)
        };
        // Otherwise a line that cannot be written is a panic.
        let lines = tracing_subscriber::fmt::layer().event_format(Lines::new());
        let lines = lines.with_writer(writer).log_internal_errors(false);
        tracing_subscriber::registry().with(lines).with(filter).init();
    }

    /// The runtime directory: the one that was given, or the default.
    #[must_use]
    pub fn context(self) -> Context {
        let is_default_dir = self.runtime_dir.is_none();
        Context { is_default_dir, runtime_dir: self.runtime_dir.unwrap_or_else(paths::default_path) }
    }
}
