//! `ringway run`: the daemon.
#![deny(clippy::print_stdout, clippy::disallowed_methods)]

use std::ffi::CStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ringway_api::patience;
use ringway_commands::context::{Context, complain};
use ringway_commands::out;
use ringway_config::{Config, Host, LoadError, Loaded, load_text, load_with_doubts};
use ringway_daemon::serve::{
    Event, FLUSH_WITHIN, Options, begin, check, check_version, configuration_left, give_up, give_up_ahead,
    give_up_some, give_up_to_check, serve,
};
use ringway_daemon::{log, opener};
use ringway_keeper::{Link, Predecessor, Role, State, carry};

use crate::{closer, journal, keeper, service_manager};

/// Serve: switch frames between ports until SIGTERM or SIGINT
///
/// Prints "ready" when ports accept clients. A port whose device, namespace or socket is missing has failed and is tried again every
/// second; a switch without its forwarding program drops all frames until the program is there. SIGHUP reads the configuration file
/// again and changes only what differs. Exits 78 if the configuration has mistakes, or cannot be read. Feeds the watchdog of
/// systemd (WatchdogSec=) as long as all pollers and the control thread go on.
///
/// The process that is started is the keeper. It starts the switch, which has no privileges and no access to files, and a process that opens devices
/// and sockets for it; and another switch at once when the switch dies, or ends
/// with status 70 because a thread that everything needs has failed. TAP devices with their addresses and routes, the switch's
/// own sockets and what commands changed stay; who connects meanwhile waits.
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
    /// One process instead of three: nothing outlives a crash of the switch, which keeps its privileges. For debuggers
    #[arg(long)]
    no_keeper: bool,
}

/// Longest wait for the keeper before the user hears that the daemon is ready.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Exit status of a configuration with mistakes (`EX_CONFIG` of sysexits.h): the service manager does not start the daemon again.
const CONFIGURATION: u8 = 78;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let is_kept = !args.check && !args.no_keeper;
    let role = keeper::role();
    if is_kept && role.is_none() {
        return keeper::keep(&context.runtime_dir);
    }
    match role {
        Some(Role::Opener) => return open_for_switch(c"ringway-opener", args.config, context),
        Some(Role::Carrier) => {
            return match carry() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    complain("run", &error.to_string());
                    ExitCode::FAILURE
                }
            };
        }
        Some(Role::NextOpener) => return open_for_switch(c"ringway-next", args.config, context),
        _ => {}
    }
    let link = match role.filter(|_| is_kept) {
        None => Ok(Link::default()),
        Some(Role::Check) => Link::from_keeper(c"ringway-check"),
        Some(Role::Next) => {
            Link::from_keeper_ahead(c"ringway-next", c"ringway-switch", || give_up_ahead(closer::command))
        }
        Some(_) => Link::from_keeper(c"ringway-switch"),
    };
    let link = match link {
        Ok(link) => link,
        Err(error) => {
            complain("run", &error.to_string());
            return ExitCode::FAILURE;
        }
    };
    // The keeper takes the end of the link for that of the process.
    std::mem::forget(link.clone());
    let host = Host::here(&context.runtime_dir);
    if role == Some(Role::Check) {
        // What was left is the present switch's, which may be in a client's hands.
        give_up_to_check();
        return check_left(&link, args.config.as_deref(), &host);
    }
    let claim = match link.predecessor().map(|_| give_up(&context.runtime_dir, &link)).transpose() {
        Ok(claim) => claim.flatten(),
        Err(error) => {
            complain("run", &error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let deaths = begin(&link);
    give_up_some(&link, &deaths);
    let loaded = match &args.config {
        None => Ok(Loaded::default()),
        // A successor starts with what was in force. What the file has become is for the next reload.
        Some(file) => match configuration_left(&link).and_then(|text| load_text(file, text, &host).ok()) {
            Some(left) => Ok(left),
            None => load_with_doubts(file, &host),
        },
    };
    let Loaded { config, doubts, absent, text } = match loaded {
        Ok(loaded) => loaded,
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
    let watchdog = service_manager::watchdog();
    let options = Options {
        runtime_dir: context.runtime_dir.clone(),
        file,
        text,
        config,
        host,
        closer: (role != Some(Role::Next)).then_some(closer::command),
        watchdog,
        keeper: link.clone(),
        deaths,
        claim,
    };
    let served = serve(options, |event| tell(&link, watchdog.is_some(), event));
    if let Err(error) = &served {
        journal::on_stderr(&error.to_string());
    }
    log::flush(patience(FLUSH_WITHIN));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_of_configuration() => ExitCode::from(CONFIGURATION),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Opens for the switch what that may not open itself. `first`: the name of the process before it is asked something.
fn open_for_switch(first: &CStr, config: Option<PathBuf>, context: &Context) -> ExitCode {
    log::start();
    // The keeper writes there what administrators grant.
    let grants = rustix::stdio::stdout().try_clone_to_owned().ok().map(File::from);
    let options =
        opener::Options { file: config, runtime_dir: context.runtime_dir.clone(), grants, closer: closer::command };
    match opener::open_for_switch([first, c"ringway-opener"], options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("run", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Says whether this version could go on with what is kept.
fn check_left(link: &Link, config: Option<&Path>, host: &Host) -> ExitCode {
    if let Err(why) = check_version(link) {
        complain("run", &why);
        return ExitCode::FAILURE;
    }
    let loaded = config.zip(configuration_left(link)).map(|(file, text)| load_text(file, text, host));
    match loaded.transpose() {
        Ok(_) => {
            link.is(State::Fits);
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error),
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

fn tell(keeper: &Link, has_watchdog: bool, event: Event) {
    match event {
        Event::Ready => {
            tell_state(keeper, State::Ready);
            // To who started it, ports have accepted clients all the time.
            if !keeper.predecessor().is_some_and(Predecessor::has_served) {
                // Commands ask it, too.
                keeper.wait_until_heard(HEARD_WITHIN);
                log::stdout().say("ready");
            }
        }
        Event::Reloaded(changes) if changes.is_empty() => {
            log::stdout().say("reloaded: nothing differs");
        }
        Event::Reloaded(changes) => {
            log::stdout().say(&format!("reloaded: {}", changes.join(", ")));
        }
        Event::NotReloaded(refused) => journal::on_stderr(&format!("{refused}\nnot reloaded: nothing has changed")),
        // The keeper looks at a switch that does not say so.
        Event::Alive if keeper.is_kept() || has_watchdog => tell_state(keeper, State::Alive),
        Event::Alive => {}
        Event::Stopping => tell_state(keeper, State::Stopping),
    }
}

/// Tells the service manager, which hears the keeper, if there is one.
fn tell_state(keeper: &Link, state: State) {
    if keeper.is_kept() { keeper.is(state) } else { service_manager::tell(state) }
}
