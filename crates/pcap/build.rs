//! Gives the library libpcap's soname, and makes the folder `libpcap` beside it: links of libpcap's names, for LD_LIBRARY_PATH.

use std::fs::File;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The sonames of libpcap: Debian's and Ubuntu's, and everyone else's.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{}", NAMES[0]);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    // target/PROFILE/build/PACKAGE-HASH/out
    let Some(profile) = out.ancestors().nth(3) else { return Ok(()) };
    let folder = profile.join("libpcap");
    std::fs::create_dir_all(&folder)?;
    for name in NAMES {
        let link = folder.join(name);
        // Where cargo puts the library also when it builds it for tests.
        let library = Path::new("../deps/libringway_pcap.so");
        if std::fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        let _ = std::fs::remove_file(&link);
        symlink(library, &link)?;
    }
    // A folder that is removed is made again. Its links must not be looked at: they lead to what is built after this. The mark is older than
    // this run: otherwise the next build would run this again, and compile all that depends on this crate.
    let mark = folder.join(".made");
    File::create(&mark)?.set_modified(SystemTime::UNIX_EPOCH)?;
    println!("cargo::rerun-if-changed={}", mark.display());
    Ok(())
}
