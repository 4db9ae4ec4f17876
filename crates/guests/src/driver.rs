//! The driver of Linux guests (`guest/linux`), built for Debian's kernels and kept.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, at};
use crate::fetch;
use crate::kernel::Kernel;
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

impl Kernel {
    /// Returns the driver of Linux guests for this kernel. Builds it if its sources have changed since it was built. What builds it is
    /// fetched if it is missing (100 MB) and kept with the kernel.
    pub fn own_driver(&self) -> Result<Vec<u8>, Error> {
        // Other processes wait while one fetches or builds. Closing the file unlocks it.
        let path = self.dir().join("driver.lock");
        let lock = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;

        let built = self.dir().join("drivers").join(format!("{NAME}-{:016x}.ko", hash()));
        if !built.exists() {
            self.build(&built)?;
        }
        std::fs::read(&built).map_err(at(&built))
    }

    fn build(&self, to: &Path) -> Result<(), Error> {
        let headers = self.dir().join(format!("headers-{EDITION}"));
        if !headers.exists() {
            let needs = [("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("unshare", "util-linux"), ("chroot", "coreutils")];
            let needs = needs.map(|(name, of)| Program::new(name, of));
            let args = [self.release().suite(), &headers.to_string_lossy(), &self.version()];
            fetch::run(FETCH, &needs, &args, Error::Driver)?;
        }
        let dir = tempfile::Builder::new().prefix("ringway-driver-").tempdir().map_err(at(std::env::temp_dir()))?;
        for (name, content) in SOURCES {
            let path = dir.path().join(name);
            std::fs::write(&path, content).map_err(at(&path))?;
        }
        let args = [headers.to_string_lossy(), dir.path().to_string_lossy()];
        fetch::run(BUILD, &[], &args.each_ref().map(|arg| &**arg), Error::Driver)?;
        // A whole file or none, even if this process is killed.
        let (from, part) = (dir.path().join(NAME).with_extension("ko"), to.with_extension("part"));
        std::fs::create_dir_all(to.parent().unwrap_or(to)).map_err(at(to))?;
        std::fs::copy(&from, &part).map_err(at(&part))?;
        std::fs::rename(&part, to).map_err(at(to))
    }
}

/// Returns the same number for the same sources and way to build.
fn hash() -> u64 {
    let mut hasher = DefaultHasher::new();
    (SOURCES, BUILD, EDITION).hash(&mut hasher);
    hasher.finish()
}
