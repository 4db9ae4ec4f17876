//! `ringway run`: the daemon.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ringway_control::config::{Config, Host, LoadError, load};
use ringway_control::daemon::serve::{Event, Options, serve};
use sd_notify::NotifyState;

use super::{Context, USAGE, complain};
use crate::out;

/// Serve: switch frames between ports until SIGTERM or SIGINT
///
/// Prints "ready" when ports accept clients. SIGHUP reads the configuration file again and changes only what differs. Exits 70
/// with a message when a thread that everything needs has failed, so that a service manager starts it anew; feeds the watchdog of
/// systemd (WatchdogSec=) as long as all pollers and the control thread go on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway run                              # clients make switches and ports by attaching
  ringway run --config /etc/ringway.toml
  ringway run --config ringway.toml --check")]
pub struct Args {
    /// Configuration file (TOML); none: defaults, and no ports but those that clients make
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say whether the configuration is valid
    #[arg(long)]
    check: bool,
}

/// The shortest watchdog that is fed.
const LEAST_WATCHDOG: Duration = Duration::from_millis(10);

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let config = match args.config.as_deref().map(|file| load(file, &Host::here(&context.runtime_dir))).transpose() {
        Ok(config) => config.unwrap_or_default(),
        Err(error) => return refuse(&error),
    };
    if args.check {
        return out::print(&summary(&config));
    }
    // The file is read again later, wherever this process's directory is then.
    let file = args.config.map(|file| std::path::absolute(&file).unwrap_or(file));
    // No time is no watchdog.
    let watchdog = sd_notify::watchdog_enabled().filter(|watchdog| *watchdog >= LEAST_WATCHDOG);
    let options = Options { runtime_dir: context.runtime_dir.clone(), file, config, watchdog };
    match serve(options, tell) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("run", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Mistakes stand alone, as `FILE:LINE:COLUMN: ...`, for editors.
fn refuse(error: &LoadError) -> ExitCode {
    match error {
        LoadError::Rejected(rejected) => eprintln!("{rejected}"),
        LoadError::Unreadable { .. } => complain("run", &error.to_string()),
    }
    ExitCode::from(USAGE)
}

fn summary(config: &Config) -> String {
    format!("valid: {} switches, {} ports\n", config.switches.len(), config.ports.len())
}

fn tell(event: Event) {
    match event {
        Event::Ready => {
            notify(&[NotifyState::Ready]);
            let _ = out::print("ready\n");
        }
        Event::Reloaded(changes) if changes.is_empty() => {
            let _ = out::print("reloaded: nothing differs\n");
        }
        Event::Reloaded(changes) => {
            let _ = out::print(&format!("reloaded: {}\n", changes.join(", ")));
        }
        Event::NotReloaded(refused) => complain("run", &format!("{refused}\nnot reloaded: nothing has changed")),
        Event::Alive => notify(&[NotifyState::Watchdog]),
        Event::Stopping => notify(&[NotifyState::Stopping]),
    }
}

/// Tells systemd, where it asked (NOTIFY_SOCKET).
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}
