//! Where the daemon listens. `ringway exec` says it by two variables; without them it is the daemon's default, as
//! `runtime_dir` of `ringway-control` has it.

use std::path::{Path, PathBuf};

/// The variable with the path of the socket where programs attach.
const ATTACH: &str = "RINGWAY_ATTACH_SOCKET";
/// The variable with the path of the administration socket.
const CONTROL: &str = "RINGWAY_CONTROL_SOCKET";

/// Returns the path of the socket where programs attach.
pub fn attach() -> PathBuf {
    variable(ATTACH).unwrap_or_else(|| default_dir().join("attach.sock"))
}

/// Returns the path of the administration socket. It is beside the other unless a variable says where.
pub fn control() -> PathBuf {
    variable(CONTROL).unwrap_or_else(|| attach().parent().unwrap_or(Path::new("/")).join("control.sock"))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn default_dir() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/ringway");
    }
    match variable("XDG_RUNTIME_DIR").filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("ringway"),
        None => PathBuf::from(format!("/tmp/ringway-{}", uid.as_raw())),
    }
}
