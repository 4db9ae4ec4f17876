//! `make install` and `make uninstall`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringway_scenes::{binary, ringway};
use ringway_testing::file::directory;

use crate::built::{output, root, static_library};
use crate::programs::{compile_example, run_example};

/// What has to be below the prefix, with the mode of each file.
const FILES: [(&str, u32); 20] = [
    ("bin/ringway", 0o755),
    ("include/ringway.h", 0o644),
    ("lib/libringway.a", 0o644),
    ("lib/libringway.so", 0o644),
    ("lib/libringway.so.0", 0o644),
    ("lib/pkgconfig/ringway.pc", 0o644),
    ("lib/ringway/libpcap/libpcap.so.0.8", 0o644),
    ("lib/ringway/libpcap/libpcap.so.1", 0o644),
    ("lib/ringway/libringway-netmap.so", 0o644),
    ("lib/systemd/system/ringway.service", 0o644),
    ("libexec/ringway/ringway-program-compiler", 0o755),
    ("share/bash-completion/completions/ringway", 0o644),
    ("share/doc/ringway/LICENSE", 0o644),
    ("share/fish/vendor_completions.d/ringway.fish", 0o644),
    ("share/man/man1/ringway.1", 0o644),
    ("share/man/man1/ringway-port-add.1", 0o644),
    ("share/man/man3/ringway.3", 0o644),
    ("share/man/man3/ringway-lwep.3", 0o644),
    ("share/man/man5/ringway.toml.5", 0o644),
    ("share/zsh/site-functions/_ringway", 0o644),
];

/// A folder like the one of a build: cargo itself puts the static library elsewhere when it builds tests.
fn build_folder() -> tempfile::TempDir {
    let folder = directory();
    symlink(binary(), folder.path().join("ringway")).unwrap();
    // Tests of the whole workspace build it.
    symlink(binary().with_file_name("ringway-program-compiler"), folder.path().join("ringway-program-compiler"))
        .unwrap();
    symlink(static_library(), folder.path().join("libringway_c.a")).unwrap();
    for library in ["libringway_pcap.so", "libringway_netmap.so"] {
        symlink(std::env::current_exe().unwrap().with_file_name(library), folder.path().join(library)).unwrap();
    }
    folder
}

fn make(target: &str, build: &Path, prefix: &str, destination: &Path) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(root()).arg(target).arg(format!("BUILT={}", build.display()));
    make.arg(format!("PREFIX={prefix}")).arg(format!("DESTDIR={}", destination.display()));
    // Not those of a `make` that runs this test.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    make
}

/// Files and links below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() && !path.is_symlink() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn an_installed_library_is_found_by_pkg_config_and_uninstalled_without_a_trace() {
    let (build, destination) = (build_folder(), directory());
    output(&mut make("install", build.path(), "/opt/ringway", destination.path()));
    let prefix = destination.path().join("opt/ringway");
    for (name, mode) in FILES {
        let data = std::fs::metadata(prefix.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(data.permissions().mode() & 0o777, mode, "{name}");
    }
    // The daemon that was installed is the one that was built, and the unit starts it.
    let version = |mut command: Command| output(command.arg("--version"));
    assert_eq!(version(Command::new(prefix.join("bin/ringway"))), version(ringway()));
    let unit = std::fs::read_to_string(prefix.join("lib/systemd/system/ringway.service")).unwrap();
    assert!(unit.contains("\nExecStart=/opt/ringway/bin/ringway --runtime-dir"), "{unit}");

    // Programs get the installed libraries.
    let exec = |program: &[&str]| output(Command::new(prefix.join("bin/ringway")).arg("exec").args(program));
    let variables = exec(&["env"]);
    for (name, library) in [("LD_LIBRARY_PATH", "libpcap"), ("LD_PRELOAD", "libringway-netmap.so")] {
        let wanted = format!("{name}={}", prefix.join("lib/ringway").join(library).display());
        assert!(variables.lines().any(|line| line.starts_with(&wanted)), "{wanted}: {variables}");
    }
    let version = exec(&["tcpdump", "--version"]);
    assert!(version.contains("with ports of Ringway"), "{version}");

    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", destination.path());
    let flags = output(pkg_config.args(["--cflags", "--libs", "ringway"]));
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let dir = directory();
    run_example(&compile_example(dir.path(), &flags), &prefix.join("lib"));

    output(&mut make("uninstall", build.path(), "/opt/ringway", destination.path()));
    assert_eq!(files(destination.path()), Vec::<PathBuf>::new());
}

#[test]
fn an_installation_says_what_is_missing() {
    let (build, destination) = (directory(), directory());
    let refused = |mut command: Command, wanted: &str| {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(wanted), "{text}");
    };
    refused(make("install", build.path(), "/usr", destination.path()), "is not there: run \"make build\" first");
    refused(
        make("install", build_folder().path(), "usr", destination.path()),
        "PREFIX is \"usr\": it has to be an absolute path",
    );
    assert_eq!(files(destination.path()), Vec::<PathBuf>::new());
}
