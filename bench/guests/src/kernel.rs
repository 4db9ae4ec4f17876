//! Debian's kernels, fetched once and kept unpacked, and a debug kernel, built once from Debian's source.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, at};
use crate::fetch;
use crate::programs::Program;

/// Script that fetches and unpacks a kernel. Included, because an installed program has no source tree next to it.
const FETCH: &str = include_str!("../../../packaging/guest-kernel");

/// Raise this with every change to what is fetched of a kernel, so that kernels kept before are fetched again.
const EDITION: u32 = 8;

/// Script that builds the debug kernel.
const BUILD: &str = include_str!("../../../packaging/guest-debug-kernel");

/// Raise this with every change to how the debug kernel is built.
const DEBUG_EDITION: u32 = 1;

/// A kernel for guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// Debian 12: Linux 6.1.
    #[default]
    Bookworm,
    /// Debian 12 backports: Linux 6.12.
    Backports,
    /// Debian 13: Linux 6.12.
    Trixie,
    /// Debian 13 backports: Linux 7.3, or a newer one.
    TrixieBackports,
    /// Linux 6.1 with KASAN, lockdep, kmemleak and further checks, built here from Debian 12's source. See
    /// [`Guest::kernel_complaints`](crate::Guest::kernel_complaints).
    Debug,
}

impl Release {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Release::Bookworm => "bookworm",
            Release::Backports => "bookworm-backports",
            Release::Trixie => "trixie",
            Release::TrixieBackports => "trixie-backports",
            Release::Debug => "debug",
        }
    }

    /// Returns the folder in which it is kept.
    fn folder(self) -> String {
        let edition = if self == Release::Debug { DEBUG_EDITION } else { EDITION };
        format!("{}-{edition}", self.name())
    }
}

/// A kernel and its drivers.
#[derive(Debug, Clone)]
pub struct Kernel {
    release: Release,
    dir: PathBuf,
}

impl Kernel {
    /// Returns true if this kernel is kept here. Otherwise [`Kernel::get`] fetches it, up to 120 MB, or builds it
    /// for some minutes.
    pub fn is_here(release: Release) -> bool {
        cache().is_ok_and(|cache| cache.join(release.folder()).exists())
    }

    /// Returns the kernel. Fetches or builds it if it is missing. Kernels are kept in `$RINGWAY_GUEST_KERNELS`, or
    /// else in `ringway/kernels` of `$XDG_CACHE_HOME`.
    pub fn get(release: Release) -> Result<Kernel, Error> {
        let cache = cache()?;
        std::fs::create_dir_all(&cache).map_err(at(&cache))?;
        // One process fetches, and the others wait for it, but not for another kernel. Closing the file unlocks it.
        let path = cache.join(format!("{}.lock", release.folder()));
        let lock = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;
        let dir = cache.join(release.folder());
        if !dir.exists() {
            fetch(release, &dir)?;
        }
        Ok(Kernel { release, dir })
    }

    pub(crate) fn release(&self) -> Release {
        self.release
    }

    /// Returns the folder of the kernel.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the unpacked kernel. QEMU starts it at once; a compressed kernel would take seconds to
    /// unpack itself.
    pub fn image(&self) -> PathBuf {
        self.dir.join("vmlinux")
    }

    /// Returns its version.
    pub fn version(&self) -> String {
        std::fs::read_to_string(self.dir.join("release")).unwrap_or_default().trim().to_owned()
    }

    /// Returns the drivers that are modules: names and contents, each after those that it needs.
    pub fn modules(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let dir = self.dir.join("modules");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(at(&dir))? {
            let name = entry.map_err(at(&dir))?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".ko").map(str::to_owned));
        }
        names.sort();
        let (mut sorted, mut seen) = (Vec::new(), HashSet::new());
        for name in names {
            add(&dir, &name, &mut seen, &mut sorted)?;
        }
        Ok(sorted)
    }
}

/// Adds a module after those that it needs. A module that is not in the folder is built into the kernel.
fn add(dir: &Path, name: &str, seen: &mut HashSet<String>, sorted: &mut Vec<(String, Vec<u8>)>) -> Result<(), Error> {
    let path = dir.join(format!("{name}.ko"));
    if !path.exists() || !seen.insert(name.to_owned()) {
        return Ok(());
    }
    let content = std::fs::read(&path).map_err(at(&path))?;
    for needed in depends(&content) {
        add(dir, &needed, seen, sorted)?;
    }
    sorted.push((name.to_owned(), content));
    Ok(())
}

/// Returns the names in a module's "depends=" field, which ends with a zero byte.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[start + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn cache() -> Result<PathBuf, Error> {
    fetch::cache("RINGWAY_GUEST_KERNELS", "kernels").map_err(Error::Kernel)
}

fn fetch(release: Release, dir: &Path) -> Result<(), Error> {
    let needs = [("apt-get", "apt"), ("xz", "xz-utils"), ("zstd", "zstd")].map(|(name, of)| Program::new(name, of));
    let dir = dir.to_string_lossy();
    match release {
        Release::Debug => fetch::run(BUILD, &needs, &[&dir], Error::Kernel),
        _ => fetch::run(FETCH, &needs, &[release.name(), &dir], Error::Kernel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_read() {
        assert_eq!(depends(b"\x7fELF..\0depends=virtio_ring,virtio\0retpoline=Y\0"), ["virtio_ring", "virtio"]);
        assert_eq!(depends(b"..\0depends=\0name=failover\0"), [""; 0]);
        assert_eq!(depends(b"no such text"), [""; 0]);
    }
}
