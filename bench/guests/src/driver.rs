//! The driver of Linux guests (`guest/linux`), built for Debian's kernels and kept.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::error::{Error, at};
use crate::fetch;
use crate::kernel::{Kernel, Release};
use crate::programs::Program;

/// Name of the module.
pub const NAME: &str = "ringway_e1000";

/// Its sources: names and contents.
const SOURCES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/driver.rs"));

/// Script that fetches what builds modules for a kernel. Included, as the sources are.
const FETCH: &str = include_str!("../../../packaging/guest-headers");

/// Raise this with every change to what is fetched, so that what was kept before is fetched again.
const EDITION: u32 = 1;

/// Builds the module in the folder that is the second argument. Without debugging information, which emulated guests would unpack for
/// a second.
const BUILD: &str = r#"set -e
"$1/make" "$2" >"$2/log" 2>&1 || { cat "$2/log" >&2; exit 1; }
"$1/make" --run "$2" strip --strip-debug ringway_e1000.ko
"#;

/// How a guest uses the driver of Linux guests.
#[derive(Debug, Clone)]
pub struct OwnDriver {
    pub parameters: String,
    pub all: bool,
}

impl Kernel {
    /// Returns the driver of Linux guests for this kernel. Builds it if its sources have changed since it was built. What builds it is
    /// fetched if it is missing (100 MB) and kept with the kernel.
    pub fn own_driver(&self) -> Result<Vec<u8>, Error> {
        let headers = self.headers()?;
        let _lock = self.lock()?;
        let built = self.dir().join("drivers").join(format!("{NAME}-{:016x}.ko", hash()));
        if !built.exists() {
            build(&headers, &built)?;
        }
        std::fs::read(&built).map_err(at(&built))
    }

    /// Returns the folder of what builds modules for this kernel: by its program `make FOLDER [ARGUMENT]...`. Fetches it if it is missing.
    pub fn headers(&self) -> Result<PathBuf, Error> {
        if self.release() == Release::Debug {
            return Ok(self.dir().join("build"));
        }
        let _lock = self.lock()?;
        let headers = self.dir().join(format!("headers-{EDITION}"));
        if !headers.exists() {
            let needs = [("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("unshare", "util-linux"), ("chroot", "coreutils")];
            let needs = needs.map(|(name, of)| Program::new(name, of));
            let args = [self.release().name(), &headers.to_string_lossy(), &self.version()];
            fetch::run(FETCH, &needs, &args, Error::Driver)?;
        }
        Ok(headers)
    }

    /// Waits until no other process fetches or builds for this kernel. Closing the file unlocks it.
    fn lock(&self) -> Result<File, Error> {
        let path = self.dir().join("driver.lock");
        let lock = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;
        Ok(lock)
    }
}

fn build(headers: &Path, to: &Path) -> Result<(), Error> {
    let dir = unpack()?;
    let args = [headers.to_string_lossy(), dir.path().to_string_lossy()];
    fetch::run(BUILD, &[], &args.each_ref().map(|arg| &**arg), Error::Driver)?;
    // A whole file or none, even if this process is killed.
    let (from, part) = (dir.path().join(NAME).with_extension("ko"), to.with_extension("part"));
    std::fs::create_dir_all(to.parent().unwrap_or(to)).map_err(at(to))?;
    std::fs::copy(&from, &part).map_err(at(&part))?;
    std::fs::rename(&part, to).map_err(at(to))
}

/// Writes the sources into a folder of their own.
fn unpack() -> Result<TempDir, Error> {
    let dir = tempfile::Builder::new().prefix("ringway-driver-").tempdir().map_err(at(std::env::temp_dir()))?;
    for (name, content) in SOURCES {
        let path = dir.path().join(name);
        std::fs::write(&path, content).map_err(at(&path))?;
    }
    Ok(dir)
}

/// Returns the same number for the same sources and way to build.
fn hash() -> u64 {
    let mut hasher = DefaultHasher::new();
    (SOURCES, BUILD, EDITION).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use ringway_testing::skip;

    use super::*;

    const RELEASES: [Release; 4] = [Release::Bookworm, Release::Backports, Release::Trixie, Release::TrixieBackports];
    /// The headers of Linux 7 come without a script that sparse needs.
    const WITH_SPARSE: [Release; 3] = [Release::Bookworm, Release::Backports, Release::Trixie];

    /// Builds the module as a developer does. Returns what the compiler and sparse say.
    fn make(release: Release, dir: &Path) -> (bool, String) {
        let headers = Kernel::get(release).and_then(|kernel| kernel.headers()).unwrap();
        let mut make = Command::new(headers.join("make"));
        make.arg(dir).args(["-s", "KCFLAGS=-Werror"]);
        if WITH_SPARSE.contains(&release) {
            make.arg("C=1");
        }
        let said = make.output().unwrap();
        let text = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (said.status.success(), text.lines().filter(|line| !line.starts_with("Skipping BTF")).collect())
    }

    #[test]
    fn compilers_and_sparse_have_nothing_to_say_of_the_driver() {
        if std::env::var_os("RINGWAY_NO_QEMU").is_some() {
            skip!("guests are left out, as RINGWAY_NO_QEMU is set");
        }
        // The oldest and the newest for every change.
        let is_whole = std::env::var_os("RINGWAY_GUESTS_WHOLE").is_some();
        let releases = RELEASES.into_iter().filter(|release| is_whole || [RELEASES[0], RELEASES[3]].contains(release));
        thread::scope(|scope| {
            for release in releases {
                scope.spawn(move || {
                    assert_eq!(make(release, unpack().unwrap().path()), (true, String::new()), "{release:?}");
                });
            }
        });
        // Both are asked: sparse first, as the compiler's complaint ends the build.
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Kbuild"), "obj-m := first.o second.o").unwrap();
        let first = "static __be16 wrong = 1; void *user(void); void *user(void) { return &wrong; }";
        for (name, wrong) in [("first.c", first), ("second.c", "static int unused;")] {
            let text = format!("#include <linux/module.h>\nMODULE_LICENSE(\"GPL\");\n{wrong}\n");
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let (_, said) = make(Release::Bookworm, dir.path());
        for what in ["incorrect type in initializer", "defined but not used"] {
            assert!(said.contains(what), "{said}");
        }
    }
}
