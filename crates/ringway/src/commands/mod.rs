//! One file per subcommand, each with its `Args` and `run`.

pub mod bucket;
pub mod capture;
pub mod completions;
pub mod fdb;
pub mod r#gen;
mod keys;
pub mod lab;
pub mod port;
pub mod run;
pub mod status;
pub mod switch;
pub mod top;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use ringway_control::client::{Client, ClientError};

/// What every subcommand gets.
#[derive(Debug)]
pub struct Context {
    /// The daemon's runtime directory.
    pub runtime_dir: PathBuf,
}

impl Context {
    /// Asks the daemon.
    pub fn client(&self) -> Client {
        Client::new(&self.runtime_dir)
    }
}

/// The user's mistake: something has to be written otherwise.
pub const USAGE: u8 = 2;

/// Says why `command` failed. Exits 2 when the user has to ask for something else, 1 when the system failed.
pub fn fail(command: &str, error: &ClientError) -> ExitCode {
    complain(command, &error.to_string());
    match error {
        ClientError::Refused(_) => ExitCode::from(USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Writes `ringway COMMAND: MESSAGE` to stderr, for each line of the message.
pub fn complain(command: &str, message: &str) {
    for line in message.lines() {
        eprintln!("ringway {command}: {line}");
    }
}
