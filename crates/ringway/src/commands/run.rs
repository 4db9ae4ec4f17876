//! `ringway run`: the daemon.
#![deny(clippy::print_stdout, clippy::disallowed_methods)]

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ringway_api::patience;
use ringway_commands::context::{Context, complain};
use ringway_commands::out;
use ringway_config::{Config, Host, LoadError, Loaded, load_with_doubts};
use ringway_daemon::log;
use ringway_daemon::serve::{Event, FLUSH_WITHIN, Options, check, serve};
use sd_notify::NotifyState;

use crate::closer;
use crate::journal;

/// Serve: switch frames between ports until SIGTERM or SIGINT
///
/// Prints "ready" when ports accept clients. A port whose device, namespace or socket is missing has failed and is tried again every
/// second; a switch without its forwarding program drops all frames until the program is there. SIGHUP reads the configuration file
/// again and changes only what differs. Exits 78 if the configuration has mistakes, or cannot be read. Exits 70
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
    /// Only say whether the configuration is valid, and warn of what is missing on this machine
    #[arg(long)]
    check: bool,
}

/// Exit status of a configuration with mistakes (`EX_CONFIG` of sysexits.h): the service manager does not start the daemon again.
const CONFIGURATION: u8 = 78;
/// Longest wait for room in the service manager's socket: for the first message, which it waits for, and for others.
const READY_WITHIN: Duration = Duration::from_secs(5);
const NOTIFY_WITHIN: Duration = Duration::from_millis(1);
/// The shortest watchdog that is fed.
const LEAST_WATCHDOG: Duration = Duration::from_millis(10);

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let host = Host::here(&context.runtime_dir);
    let Loaded { config, doubts, absent } =
        match args.config.as_deref().map(|file| load_with_doubts(file, &host)).transpose() {
            Ok(loaded) => loaded.unwrap_or_default(),
            Err(error) => return refuse(&error),
        };
    if args.check {
        doubts.iter().chain(&absent).for_each(|warning| eprintln!("{warning}"));
        if let Err(error) = check(&config) {
            complain("run", &format!("warning: {error}"));
        }
        return out::print(&summary(&config));
    }
    // A reload reads the file again, with any working directory.
    let file = args.config.map(|file| std::path::absolute(&file).unwrap_or(file));
    // A time of 0 means no watchdog.
    let watchdog = sd_notify::watchdog_enabled().filter(|watchdog| *watchdog >= LEAST_WATCHDOG);
    let options =
        Options { runtime_dir: context.runtime_dir.clone(), file, config, closer: Some(closer::command), watchdog };
    let served = serve(options, tell);
    if let Err(error) = &served {
        say_on_stderr(&error.to_string());
    }
    log::flush(patience(FLUSH_WITHIN));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_of_configuration() => ExitCode::from(CONFIGURATION),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints mistakes as `FILE:LINE:COLUMN: ...`, without a prefix, for editors.
fn refuse(error: &LoadError) -> ExitCode {
    match error {
        LoadError::Rejected(rejected) => eprintln!("{rejected}"),
        LoadError::Unreadable { .. } => complain("run", &error.to_string()),
    }
    ExitCode::from(CONFIGURATION)
}

fn summary(config: &Config) -> String {
    format!("valid: {} switches, {} ports\n", config.switches.len(), config.ports.len())
}

fn tell(event: Event) {
    match event {
        Event::Ready => {
            notify(NotifyState::Ready, READY_WITHIN);
            log::stdout().say("ready");
        }
        Event::Reloaded(changes) if changes.is_empty() => {
            log::stdout().say("reloaded: nothing differs");
        }
        Event::Reloaded(changes) => {
            log::stdout().say(&format!("reloaded: {}", changes.join(", ")));
        }
        Event::NotReloaded(refused) => say_on_stderr(&format!("{refused}\nnot reloaded: nothing has changed")),
        Event::Alive => notify(NotifyState::Watchdog, NOTIFY_WITHIN),
        Event::Stopping => notify(NotifyState::Stopping, NOTIFY_WITHIN),
    }
}

/// Writes each line of the message to stderr as [`complain`] does, and never waits for that.
fn say_on_stderr(message: &str) {
    let priority = journal::priority(tracing::Level::ERROR);
    message.lines().for_each(|line| log::stderr().say(&format!("{priority}ringway run: {line}")));
}

/// Tells systemd, where it asked (NOTIFY_SOCKET). The wait for room in its socket is bounded: the control thread goes on, and ends,
/// also while the service manager does not read.
fn notify(state: NotifyState<'_>, within: Duration) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let send = || {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(within))?;
        socket.send_to(format!("{state}\n").as_bytes(), &path)
    };
    if let Err(error) = send() {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}
