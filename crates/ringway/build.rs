//! Sets `RINGWAY_VERSION` for the compiler: the package's version and, in a git checkout, the commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A worktree keeps its log elsewhere. A path that does not exist would run this script at every build.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=RINGWAY_VERSION={version}{commit}");
}

/// Runs git; returns its first line, or `None` without git or outside of a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned).filter(|line| !line.is_empty())
}
