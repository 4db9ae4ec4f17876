//! `ringway program check`: whether Ringway takes a module.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use ringway_commands::context::{USAGE, complain};
use ringway_commands::out;
use ringway_forwarding::{MODULE_MAX, Offline};

/// Say whether a forwarding program is acceptable, or all reasons why it is not
///
/// It is compiled, and its imports and exports are checked. With --config it is also started, in a switch with the ports a and b.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway program check acl.wasm
  ringway program check acl.wasm --config 'allow tcp from 10.0.0.0/8 port 443'")]
pub struct Args {
    /// The module
    file: PathBuf,
    /// Also start it with this text
    #[arg(long, value_name = "TEXT")]
    config: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let bytes = match read(&args.file) {
        Ok(bytes) => bytes,
        Err(why) => {
            complain("program check", &why);
            return ExitCode::from(USAGE);
        }
    };
    let mut reasons = match ringway_forwarding::check(&bytes) {
        Ok(reasons) => reasons,
        Err(why) => {
            complain("program check", &why.to_string());
            return ExitCode::FAILURE;
        }
    };
    if let (true, Some(config)) = (reasons.is_empty(), &args.config) {
        reasons.extend(Offline::start(&bytes, config, &default_ports()).err());
    }
    let file = args.file.display();
    if reasons.is_empty() {
        return out::print(&format!("{file}: acceptable\n"));
    }
    for reason in reasons {
        complain("program check", &format!("{file}: {reason}"));
    }
    ExitCode::from(USAGE)
}

/// Reads a module.
///
/// # Errors
/// It cannot be read, or is too large.
pub fn read(file: &std::path::Path) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", file.display());
    let size = fs::metadata(file).map_err(wrong)?.len();
    if size > MODULE_MAX as u64 {
        return Err(format!("{}: {size} bytes: {MODULE_MAX} are the most", file.display()));
    }
    fs::read(file).map_err(wrong)
}

/// The names of ports, unless others are given.
pub fn default_ports() -> Vec<String> {
    vec!["a".to_owned(), "b".to_owned()]
}
