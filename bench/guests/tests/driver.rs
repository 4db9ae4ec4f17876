//! The driver of `guest/linux`: its style, and guests with it on QEMU's own NICs.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringway_guests::{Guest, Nic};
use ringway_testing::skip;

/// Returns the builder of a guest with one of QEMU's 82540EM, whose subsystem id is not 0x1101.
fn builder(name: &str) -> ringway_guests::Builder {
    Guest::builder(name).memory_mib(128).nic(Nic::netdev("hubport,hubid=0").model("e1000"))
}

#[test]
fn the_own_driver_takes_other_nics_only_if_it_is_told_to() {
    if std::env::var_os("RINGWAY_NO_QEMU").is_some() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    const OF_EVERY_NIC: &str = "cd /sys/bus/pci/devices; grep -l 0x100e */device | while read nic; do \
                                basename $(readlink ${nic%device}driver || echo none); cat ${nic%device}driver_override; done";
    // Otherwise `driver::short` of `ringway` shows it, of Ringway's NIC without a status block.
    if std::env::var_os("RINGWAY_GUESTS_WHOLE").is_some() {
        let guest = builder("some").own_driver("").start().unwrap();
        assert_eq!(guest.ok(OF_EVERY_NIC).unwrap(), "e1000\n(null)\n");
        guest.ok("test -e /sys/module/ringway_e1000").unwrap();
    }
    let guest = builder("all").own_driver_for_all("combine=off csb=off").start().unwrap();
    assert_eq!(guest.ok(OF_EVERY_NIC).unwrap(), "ringway_e1000\nringway_e1000\n");
    assert_eq!(guest.ok("cd /sys/module/ringway_e1000/parameters && cat combine csb").unwrap(), "off\noff\n");
}

/// Returns the kernel's checkpatch.pl, from Debian's source of the kernel. It is unpacked once.
fn checkpatch() -> Option<PathBuf> {
    let mut sources = std::fs::read_dir("/usr/src").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let source = sources.find(|path| name(path).starts_with("linux-source-") && name(path).ends_with(".tar.xz"))?;
    let scripts = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name(&source).replace(".tar.xz", "/scripts"));
    if !scripts.join("checkpatch.pl").exists() {
        let into = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // The first of each: the archive is not read to its end.
        let unpack = "xz -T0 -dc \"$1\" | tar -x -C \"$2\" --wildcards --occurrence=1 '*/scripts/checkpatch.pl' \
                      '*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch'";
        let unpacked = Command::new("sh").args(["-c", unpack, "sh"]).arg(&source).arg(into.path()).status().unwrap();
        assert!(unpacked.success(), "{} is unpacked", source.display());
        let folder = scripts.parent().unwrap();
        std::fs::rename(into.path().join(folder.file_name().unwrap()), folder).unwrap();
    }
    Some(scripts.join("checkpatch.pl"))
}

/// This driver is not part of one kernel's source, and without that source checkpatch.pl does not know the kernel's own names.
const NOT_FOR_US: &str = "LINUX_VERSION_CODE,CONSTANT_COMPARISON,CAMELCASE";

#[test]
fn checkpatch_has_nothing_to_say_of_the_driver() {
    let Some(checkpatch) = checkpatch() else { skip!("needs the Debian package linux-source") };
    let check = |files: &[PathBuf]| {
        let mut perl = Command::new("perl");
        // It writes a file of its own there.
        perl.current_dir(env!("CARGO_TARGET_TMPDIR")).arg(&checkpatch).args([
            "--no-tree",
            "--strict",
            "--quiet",
            "--show-types",
            "--ignore",
            NOT_FOR_US,
            "--file",
        ]);
        perl.args(files);
        let said = perl.output().unwrap();
        (said.status.success(), String::from_utf8_lossy(&said.stdout).into_owned())
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/linux");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let source = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".h") || name.ends_with(".c") && !name.ends_with(".mod.c")
    };
    let files: Vec<PathBuf> = files.filter(source).collect();
    assert_eq!(check(&files), (true, String::new()));

    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("wrong.c");
    std::fs::write(&wrong, "// SPDX-License-Identifier: GPL-2.0\nint f(int a){return a;}\n").unwrap();
    let (passed, said) = check(&[wrong]);
    assert!(!passed && said.contains("ERROR:SPACING"), "{said}");
}
