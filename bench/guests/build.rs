//! Writes the sources of the guests' own driver (`guest/linux`) into the library: an installed program has no source tree next to it.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../guest/linux");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // The compiler's leftovers are no sources.
        if name == "Kbuild" || name.ends_with(".h") || name.ends_with(".c") && !name.ends_with(".mod.c") {
            names.push(name);
        }
    }
    names.sort();
    let mut table = String::from("[\n");
    for name in names {
        let path = folder.join(&name);
        println!("cargo::rerun-if-changed={}", path.display());
        table += &format!("    ({name:?}, include_bytes!({path:?})),\n");
    }
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("driver.rs"), table + "]\n")
}
