//! The context of every command, and the messages and exit codes of failed commands.

use std::path::PathBuf;
use std::process::ExitCode;

use ringway_api::client::{Client, ClientError};

/// The context of a command.
#[derive(Debug)]
pub struct Context {
    /// The daemon's runtime directory.
    pub runtime_dir: PathBuf,
    /// Whether the user named no other directory than the default one.
    pub is_default_dir: bool,
}

impl Context {
    /// Returns a client of the daemon.
    pub fn client(&self) -> Client {
        Client::new(&self.runtime_dir)
    }
}

/// Exit code of a command line, a key or a file that has to be written differently.
pub const USAGE: u8 = 2;

/// Says why `command` failed. Exits 2 when the user has to ask for something else, 1 when the system failed.
pub fn fail(command: &str, error: &ClientError) -> ExitCode {
    complain(command, &error.to_string());
    match error {
        ClientError::Refused(_) => ExitCode::from(USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Says what the user has to write differently.
pub fn refuse(command: &str, what: &str) -> ExitCode {
    complain(command, what);
    ExitCode::from(USAGE)
}

/// Writes `ringway COMMAND: MESSAGE` to stderr, for each line of the message.
pub fn complain(command: &str, message: &str) {
    for line in message.lines() {
        eprintln!("ringway {command}: {line}");
    }
}
