//! Where the daemon listens. `ringway exec` says it by two variables; without them it is the daemon's default.

use std::path::{Path, PathBuf};

use ringway_api::paths::{self, ATTACH_SOCKET, CONTROL_SOCKET};

/// The variable with the path of the socket where programs attach.
const ATTACH: &str = "RINGWAY_ATTACH_SOCKET";
/// The variable with the path of the administration socket.
const CONTROL: &str = "RINGWAY_CONTROL_SOCKET";

/// Returns the path of the socket where programs attach.
pub fn attach() -> PathBuf {
    variable(ATTACH).unwrap_or_else(|| paths::default_path().join(ATTACH_SOCKET))
}

/// Returns the path of the administration socket. It is beside the other unless a variable says where.
pub fn control() -> PathBuf {
    variable(CONTROL).unwrap_or_else(|| attach().parent().unwrap_or(Path::new("/")).join(CONTROL_SOCKET))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
