//! Where a daemon's sockets are.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the administration socket in the runtime directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// Name of the socket where programs attach.
pub const ATTACH_SOCKET: &str = "attach.sock";

/// Name of the socket where the keeper is asked for an upgrade.
pub const KEEPER_SOCKET: &str = "keeper.sock";

/// Name of the file in the runtime directory that keeps what commands changed.
pub const STATE_FILE: &str = "state.toml";

/// Longest path of a Unix socket in bytes, without the final zero.
pub const SOCKET_PATH_MAX: usize = 107;

/// Returns `/run/ringway` for root, else `$XDG_RUNTIME_DIR/ringway`, else `/tmp/ringway-UID`.
pub fn default_path() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/ringway");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => PathBuf::from(dir).join("ringway"),
        None => PathBuf::from(format!("/tmp/ringway-{}", uid.as_raw())),
    }
}

/// Returns true if a daemon has claimed this directory, as far as the kernel tells: it lists no locks of other process namespaces. Nothing is
/// locked for this, as a daemon that starts at this moment would then be refused.
pub fn is_claimed(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else { return false };
    let device = meta.dev();
    let id = format!("{:02x}:{:02x}:{}", rustix::fs::major(device), rustix::fs::minor(device), meta.ino());
    // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .any(|lock| lock.get(1) == Some(&"FLOCK") && lock.get(3) == Some(&"WRITE") && lock.get(5) == Some(&id.as_str()))
}
