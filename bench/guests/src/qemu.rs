//! The QEMU that runs a guest: the host's, or where that is too old, a QEMU of Debian 13 that is fetched once and kept.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::error::Error;
use crate::fetch;
use crate::programs::{Program, QEMU, find};

/// Script that fetches and unpacks a QEMU. Included, because an installed program has no source tree next to it.
const FETCH: &str = include_str!("../../../packaging/guest-qemu");

/// Folder of the kept QEMU. Raise the number with every change to what is fetched.
const FOLDER: &str = "trixie-backports-1";

/// Major and minor version number.
pub type Version = (u32, u32);

/// Any version of the host.
pub const ANY: Version = (0, 0);
/// The first version with `vfio-user-pci`.
pub const VFIO_USER: Version = (10, 1);
/// The first version with the NIC `igb`.
pub const IGB: Version = (8, 0);
/// The first version whose `-netdev stream` reconnects.
pub const STREAM_RECONNECTS: Version = (8, 0);
/// The first version that takes the time to reconnect in milliseconds. The option in seconds is gone since 10.1.
pub const MILLISECONDS: Version = (9, 2);

/// What executes the guest's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accel {
    /// QEMU's emulation: slow, but works everywhere.
    #[default]
    Tcg,
    /// The host's CPUs, through `/dev/kvm`. Even with that device, a machine may be unable to run stock guests.
    Kvm,
}

/// A QEMU for x86-64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    /// Path of the program.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
}

impl Qemu {
    /// Returns the host's QEMU if it is at least `oldest`, otherwise the kept one. Fetches that (40 MB) if it is
    /// missing.
    pub fn at_least(oldest: Version) -> Result<Qemu, Error> {
        static HOST: OnceLock<Version> = OnceLock::new();
        match find(QEMU) {
            Ok(path) => {
                let version = *HOST.get_or_init(|| version(&path).unwrap_or(ANY));
                if version >= oldest { Ok(Qemu { path, version }) } else { kept() }
            }
            Err(missing) if oldest == ANY => Err(missing),
            Err(_) => kept(),
        }
    }

    /// Returns why guests with a vfio-user NIC are not possible, or `None`. Fetches QEMU if needed.
    pub fn no_vfio_user() -> Option<Error> {
        Qemu::at_least(VFIO_USER).err()
    }
}

/// Returns the kept QEMU, in `$RINGWAY_GUEST_QEMU`, or else in `ringway/qemu` of `$XDG_CACHE_HOME`.
fn kept() -> Result<Qemu, Error> {
    static KEPT: OnceLock<Version> = OnceLock::new();
    let dir = fetch::cache("RINGWAY_GUEST_QEMU", "qemu").map_err(Error::Qemu)?.join(FOLDER);
    let path = dir.join(QEMU.name);
    if !path.exists() {
        let needs = [Program::new("apt-get", "apt"), Program::new("dpkg-deb", "dpkg")];
        fetch::run(FETCH, &needs, &[&dir.to_string_lossy()], Error::Qemu)?;
    }
    let version = match KEPT.get() {
        Some(&version) => version,
        None => version(&path).ok_or_else(|| Error::Qemu(format!("{} does not start", path.display())))?,
    };
    Ok(Qemu { path, version: *KEPT.get_or_init(|| version) })
}

fn version(qemu: &Path) -> Option<Version> {
    let said = Command::new(qemu).arg("--version").output().ok()?;
    parse(&String::from_utf8_lossy(&said.stdout))
}

/// Parses "QEMU emulator version 7.2.22 (Debian …".
fn parse(text: &str) -> Option<Version> {
    let (_, version) = text.split_once("version ")?;
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_qemu_is_read() {
        assert_eq!(parse("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)"), Some((7, 2)));
        assert_eq!(parse("QEMU emulator version 10.0.2"), Some((10, 0)));
        assert_eq!(parse("something else"), None);
    }
}
