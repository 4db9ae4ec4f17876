//! The rule by which the driver of Linux guests combines frames (`guest/linux/handover.h`), under every interleaving.

use std::process::Command;

use ringway_testing::skip;

#[test]
fn no_frame_of_the_linux_driver_waits_for_ever() {
    for program in ["spin", "gcc"] {
        if !skip::is_installed(program) {
            skip!("needs {program}");
        }
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/linux/check/run");
    let mut check = Command::new(script);
    // `make guests` asks for liveness, too, and plants all mistakes.
    if std::env::var_os("RINGWAY_GUESTS_WHOLE").is_none() {
        check.arg("--some");
    }
    let output = check.output().expect("the script runs");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
