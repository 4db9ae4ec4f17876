//! Tells the program which commit it was built from, so that a report can say it.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../.git/logs/HEAD");
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = commit.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    println!("cargo::rustc-env=RINGWAY_COMMIT={}", String::from_utf8_lossy(&commit.unwrap_or_default()).trim());
}
