//! Tests that cannot run on this machine, for want of root, a program or a kernel feature. Such a test says so and is
//! counted; it never passes silently.
//!
//! Two variables of the environment matter:
//! - `RINGWAY_SKIPPED`: a file to which each skipped test appends a line. `make test` sets it, and prints the lines at its end.
//! - `RINGWAY_REQUIRE_ALL=1`: a test that cannot run fails. `.ci/run` sets it, as `make deps` installs what tests need there.
//!   `RINGWAY_MAY_SKIP` has exceptions, separated by commas: a skip is no failure if its line holds one of them.

use std::fmt::Display;
use std::io::Write;

/// Ends a test that cannot run here, with the reason: `skip!("needs root")`. For functions that return nothing.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::skip::note(format!($($reason)+));
        return;
    }};
}

/// Notes that the running test, or a part of it, cannot run here. The test goes on after it, or returns.
///
/// # Panics
/// `RINGWAY_REQUIRE_ALL=1` is set and `RINGWAY_MAY_SKIP` does not name this skip, or the file of `RINGWAY_SKIPPED` cannot be
/// written.
#[track_caller]
pub fn note(reason: impl Display) {
    let line = format!("{}: {reason}", running_test());
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if let Some(file) = std::env::var_os("RINGWAY_SKIPPED") {
        let mut file =
            std::fs::File::options().create(true).append(true).open(file).expect("RINGWAY_SKIPPED is a file");
        // One write: lines of other test programs stay whole.
        file.write_all(format!("{line}\n").as_bytes()).expect("RINGWAY_SKIPPED can be written");
    }
    // Not by a macro: the test harness would keep it to itself.
    let _ = std::io::stderr().write_all(format!("SKIPPED {line}\n").as_bytes());
    let is_failure = is_required(&line, &variable("RINGWAY_REQUIRE_ALL"), &variable("RINGWAY_MAY_SKIP"));
    assert!(!is_failure, "RINGWAY_REQUIRE_ALL=1 allows no skipped test: {line}");
}

/// Returns true if a skipped test is a failure.
fn is_required(line: &str, require_all: &str, may_skip: &str) -> bool {
    let mut exceptions = may_skip.split(',').map(str::trim).filter(|exception| !exception.is_empty());
    !matches!(require_all, "" | "0") && !exceptions.any(|exception| line.contains(exception))
}

/// Name of the test program, without the hash in its file name, and of the running test.
fn running_test() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_stem()?.to_str()).unwrap_or("unknown program");
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    // The test harness names the thread of each test.
    let thread = std::thread::current();
    format!("{program} {}", thread.name().unwrap_or("in a thread of its own"))
}

/// Returns true if this process is root's.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns true if a program is in one of the directories of `PATH` or in those of the administrator.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(admin).any(|dir| dir.join(program).is_file())
}

/// Number of processors that this process may use.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_a_failure_where_all_is_required_unless_it_is_excepted() {
        let line = "limits-test kinds::tap: needs root";
        for (require_all, may_skip, wanted) in [
            ("", "", false),
            ("0", "", false),
            ("1", "", true),
            ("1", "needs root", false),
            ("1", "needs QEMU, kinds::tap", false),
            ("1", "needs QEMU,", true),
        ] {
            assert_eq!(is_required(line, require_all, may_skip), wanted, "{require_all:?} {may_skip:?}");
        }
    }

    #[test]
    fn a_test_knows_its_program_and_its_name() {
        let wanted = "ringway_testing skip::tests::a_test_knows_its_program_and_its_name";
        // Without threads, all tests run in the main one.
        assert!([wanted, "ringway_testing main"].contains(&&*running_test()), "{}", running_test());
    }

    #[test]
    fn programs_are_found_in_path() {
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }
}
