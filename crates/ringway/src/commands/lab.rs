//! `ringway bench` and `ringway demo`: executes `ringway-lab`, a program of its own.
//!
//! Each of the two programs finds the other in the directory of its own executable, or else in PATH.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ringway_commands::context::complain;

/// Name of the program that has the experiments and the demo.
const LAB: &str = "ringway-lab";
/// Environment variable that tells `ringway-lab` which `ringway` to start switches from.
const PROGRAM: &str = "RINGWAY_PROGRAM";

/// Everything after the name of the subcommand. `ringway-lab` parses it.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Replaces this process by `ringway-lab`, with the command line that the user gave.
///
/// Returns only on failure: the program is not installed or cannot be executed.
pub fn exec(command: &str) -> ExitCode {
    let Some(program) = find(LAB) else {
        complain(
            command,
            &format!(
                "{LAB} is not installed, neither next to this program nor in PATH: install it from Ringway's sources with \
                 \"cargo install --path crates/ringway --features lab\", or build it with \"make build\""
            ),
        );
        return ExitCode::FAILURE;
    };
    let mut arguments = env::args_os();
    let mut lab = Command::new(&program);
    // Help and the demo's last words show the command as the user called it.
    lab.arg0(arguments.next().unwrap_or_else(|| "ringway".into())).args(arguments);
    if let Ok(own) = env::current_exe() {
        lab.env(PROGRAM, own);
    }
    let error = lab.exec();
    complain(command, &format!("cannot execute {}: {error}", program.display()));
    ExitCode::FAILURE
}

/// Returns the `ringway` that `ringway-lab` starts switches from: the one that the user called, or else the one that is found.
#[cfg(feature = "demo")]
#[must_use]
pub fn switch_program() -> Option<PathBuf> {
    env::var_os(PROGRAM).map(PathBuf::from).or_else(|| find("ringway"))
}

/// Returns the executable `name` in the directory of this executable, or else in a directory of PATH.
fn find(name: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    let path = env::var_os("PATH").unwrap_or_default();
    own.into_iter().chain(env::split_paths(&path)).map(|dir| dir.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
