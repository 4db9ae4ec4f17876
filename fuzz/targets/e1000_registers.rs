//! A guest and a front end at an e1000, doing anything: nothing panics, no work is without end, nothing costs the port its place,
//! and nothing outlasts the front end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_port_e1000::fuzzing::{guest, seeds};

fuzz_target!(init: write_seeds(), |data: &[u8]| guest(data));

/// "fuzz/run e1000_registers seeds": what drivers do, as inputs to begin with.
fn write_seeds() {
    let Some(folder) = std::env::var_os("RINGWAY_FUZZ_SEEDS") else { return };
    for (name, bytes) in seeds() {
        let path = std::path::Path::new(&folder).join(name);
        std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    std::process::exit(0);
}
