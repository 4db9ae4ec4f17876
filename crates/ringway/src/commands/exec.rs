//! `ringway exec`: executes a program so that it meets Ringway's libraries: libpcap's interface by LD_LIBRARY_PATH, where late
//! loaders (Python's ctypes) look, too, and netmap's by LD_PRELOAD.

mod libraries;
mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use ringway_api::paths::{ATTACH_SOCKET, CONTROL_SOCKET};
use ringway_commands::context::{Context, complain};

/// Execute a program whose netmap and libpcap devices are ports: lan0:a, mirror:vm1
///
/// The program opens SWITCH:PORT as a device and gets a port of its own; mirror:PORT or mirror:SWITCH:PORT shows the frames of
/// another port. All other devices are as without Ringway. Static programs, programs written in Go, and set-user-ID programs do not
/// load the libraries; the command says so.
///
/// The libraries are beside this program, in ../lib/ringway, or in RINGWAY_LIB_DIR. Exits as the program does; 125: a library is
/// missing; 126: the program cannot be executed with the libraries; 127: there is no such program.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway exec tcpdump -n -i lan0:probe
  ringway exec tcpdump -n -i mirror:vm1 -c 10
  ringway exec -- python3 -c 'from scapy.all import *; print(conf.ifaces)'")]
pub struct Args {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_names = ["PROGRAM", "ARGS"],
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    program: Vec<OsString>,
}

/// A library is missing.
const NO_LIBRARY: u8 = 125;
/// The program cannot be executed.
const CANNOT_EXECUTE: u8 = 126;
/// There is no such program.
const NO_PROGRAM: u8 = 127;

/// Executes the program. Returns only on failure.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let fail = |code: u8, what: &str| {
        complain("exec", what);
        ExitCode::from(code)
    };
    let libraries = match libraries::find() {
        Ok(libraries) => libraries,
        Err(what) => return fail(NO_LIBRARY, &what),
    };
    let Some((name, arguments)) = args.program.split_first() else { return fail(NO_PROGRAM, "no program is named") };
    let Some(path) = program::find(name) else {
        return fail(NO_PROGRAM, &format!("there is no program {} in PATH", Path::new(name).display()));
    };
    if let Err(what) = program::check(&path) {
        return fail(CANNOT_EXECUTE, &what);
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command.env("LD_LIBRARY_PATH", before(libraries.pcap.as_os_str(), env::var_os("LD_LIBRARY_PATH"), ":"));
    if let Some(netmap) = &libraries.netmap {
        let others = env::var_os("LD_PRELOAD").map(|list| libraries::without_netmap(&list));
        command.env("LD_PRELOAD", before(netmap.as_os_str(), others, " "));
    }
    let directory = std::path::absolute(&context.runtime_dir).unwrap_or_else(|_| context.runtime_dir.clone());
    command.env("RINGWAY_ATTACH_SOCKET", directory.join(ATTACH_SOCKET));
    command.env("RINGWAY_CONTROL_SOCKET", directory.join(CONTROL_SOCKET));
    let error = command.exec();
    fail(CANNOT_EXECUTE, &format!("cannot execute {}: {error}", path.display()))
}

/// Returns a list with `first` before what it holds already.
fn before(first: &OsStr, list: Option<OsString>, separator: &str) -> OsString {
    let mut new = first.to_owned();
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        new.push(separator);
        new.push(list);
    }
    new
}
