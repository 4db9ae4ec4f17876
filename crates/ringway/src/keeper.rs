//! The keeper: the process of `ringway run`. It starts the switch as this program once more, and another one when that dies.
#![deny(clippy::print_stdout, clippy::disallowed_methods)]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use ringway_api::paths::KEEPER_SOCKET;
use ringway_api::patience;
use ringway_daemon::inheritance::{hold_back_signals, let_signals_through, pass_on_no_descriptors};
use ringway_daemon::log;
use ringway_daemon::serve::{CHECKED, FLUSH_WITHIN};
use ringway_keeper::{Ended, Event, Options, Role, State, run};

use crate::journal::on_stderr;
use crate::service_manager;

/// The names by which the program knows what a keeper started it for. Users do not start it by them.
const NAMES: [(&str, Role); 4] = [
    ("ringway-switch", Role::Switch),
    ("ringway-opener", Role::Opener),
    ("ringway-check", Role::Check),
    ("ringway-carrier", Role::Carrier),
];
/// The variable by which a keeper knows that it takes the place of another one.
const RESUMES: &str = "RINGWAY_RESUMES";
/// The variable by which switch and opener know that they were started ahead ([`Role::Next`]).
const AHEAD: &str = "RINGWAY_AHEAD";
/// Longest time that a switch takes to end: it ends itself before.
const END_WITHIN: Duration = Duration::from_secs(12);

/// Returns what a keeper started this process for, if one did.
#[must_use]
pub fn role() -> Option<Role> {
    let name = std::env::args_os().next()?;
    let (_, role) = NAMES.iter().find(|(has, _)| name == *has)?;
    Some(match role {
        _ if std::env::var_os(AHEAD).is_none() => *role,
        Role::Switch => Role::Next,
        Role::Opener => Role::NextOpener,
        other => *other,
    })
}

/// The command of a process with this role.
fn command(program: &Path, role: Role) -> Command {
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    if role == Role::Keeper {
        command.arg0(std::env::args_os().next().unwrap_or_default()).env(RESUMES, "1");
        return command;
    }
    command.env_remove(RESUMES);
    let (named, is_ahead) = match role {
        Role::Next => (Role::Switch, true),
        Role::NextOpener => (Role::Opener, true),
        other => (other, false),
    };
    let name = NAMES.iter().find(|(_, has)| *has == named).map_or("", |(name, _)| name);
    if is_ahead {
        command.env(AHEAD, "1");
    } else {
        command.env_remove(AHEAD);
    }
    command.arg0(name);
    // The service manager hears the keeper only. A watchdog is one for the switch, whatever its number.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_PID");
    if sd_notify::watchdog_enabled().is_none() {
        command.env_remove("WATCHDOG_USEC");
    }
    command
}

/// Keeps a switch until it ends as it was told to, or cannot start.
pub fn keep(runtime_dir: &Path) -> ExitCode {
    pass_on_no_descriptors();
    // The program of one that takes the place of another was found by a link.
    let _ = rustix::thread::set_name(c"ringway");
    log::start();
    let options = Options {
        command,
        end_within: patience(END_WITHIN),
        socket: runtime_dir.join(KEEPER_SOCKET),
        resumes: std::env::var_os(RESUMES).is_some(),
        checked: CHECKED,
    };
    let has_watchdog = service_manager::watchdog().is_some();
    let ended = run(options, |event| match event {
        Event::Is(State::Alive) if !has_watchdog => {}
        Event::Upgraded(after) => {
            tracing::info!("upgraded: the new switch serves, {} ms after the end of the last", after.as_millis());
        }
        Event::Replacing => {
            log::flush(patience(FLUSH_WITHIN));
            hold_back_signals();
        }
        Event::Replaced => {
            let_signals_through();
            tracing::info!("the keeper is replaced by version {}", env!("CARGO_PKG_VERSION"));
        }
        Event::NotUpgraded(why) => {
            let_signals_through();
            tracing::error!("not upgraded: {why}");
        }
        // It may not read at once, and the keeper does not wait.
        Event::Is(State::Ready) => {
            let tell = || service_manager::tell(State::Ready);
            let _ = std::thread::Builder::new().name("ready".to_owned()).spawn(tell);
        }
        Event::Is(state) => service_manager::tell(state),
        Event::Died { how, pause } if pause.is_zero() => {
            tracing::error!("the switch died ({how}): another one is started");
        }
        Event::Died { how, pause } => {
            tracing::error!("the switch died ({how}): another one is started in {} ms", pause.as_millis());
        }
        Event::Again(after) => {
            tracing::warn!("another switch serves, {} ms after the end of the last", after.as_millis())
        }
    });
    let code = match ended {
        Ok(Ended { status }) => ExitCode::from(status),
        Err(why) => {
            on_stderr(&format!("cannot start the switch: {why}; where there is no /proc, --no-keeper is one process"));
            ExitCode::FAILURE
        }
    };
    log::flush(patience(FLUSH_WITHIN));
    code
}
