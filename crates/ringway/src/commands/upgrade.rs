//! `ringway upgrade`: another version becomes the switch.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ringway_api::paths::KEEPER_SOCKET;
use ringway_commands::context::{Context, complain};
use ringway_commands::out;
use ringway_keeper::{ask_to_replace, ask_to_upgrade};

/// Have another version of ringway go on as the switch, under traffic
///
/// Ports keep their clients, devices and settings: guests and programs notice a pause of some milliseconds. The new version first says whether it
/// understands the configuration in force and what the running switch has kept. If it does not, or does not serve, the old one goes on, and the exit
/// status is 1. The process of "ringway run", the keeper, which starts the switch, stays the old one: --keeper replaces it, and the switch goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway upgrade                          # this program, after a package has replaced it
  ringway upgrade /opt/ringway/bin/ringway
  ringway upgrade --keeper                 # the keeper, not the switch")]
pub struct Args {
    /// The new version [default: this program]
    #[arg(value_name = "EXECUTABLE")]
    executable: Option<PathBuf>,
    /// Replace the keeper, not the switch: it executes the new version in place, with its process number
    #[arg(long)]
    keeper: bool,
}

/// Longest wait for the answer.
const UPGRADED_WITHIN: Duration = Duration::from_secs(60);

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> ExitCode {
    let own = PathBuf::from("/proc/self/exe");
    let path = args.executable.as_ref().unwrap_or(&own);
    let executable = match File::open(path) {
        Ok(executable) => executable,
        Err(why) => return failed(&format!("cannot open {}: {why}", path.display())),
    };
    let socket = context.runtime_dir.join(KEEPER_SOCKET);
    let ask = if args.keeper { ask_to_replace } else { ask_to_upgrade };
    match ask(&socket, &executable, UPGRADED_WITHIN) {
        Ok(answer) if answer.done => out::print(&format!("{}\n", answer.text)),
        Ok(answer) => failed(&format!("not upgraded: {}", answer.text)),
        Err(why) => failed(&format!(
            "cannot ask {}: {why}; is there a daemon, and was it started without --no-keeper?",
            socket.display()
        )),
    }
}

fn failed(why: &str) -> ExitCode {
    complain("upgrade", why);
    ExitCode::FAILURE
}
