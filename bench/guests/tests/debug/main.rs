//! Guests on the debug kernel. The first use builds it for some minutes, so these tests are `#[ignore]`d; `make guests` runs
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringway_guests::{Guest, Kernel, Nic, Release};
use ringway_testing::{PATIENCE, skip};

/// Returns true if guests are left out.
fn has_no_guests() -> bool {
    std::env::var_os("RINGWAY_NO_QEMU").is_some()
}

fn complaints(guest: &Guest) -> Vec<String> {
    guest.kernel_complaints().unwrap()
}

#[test]
#[ignore = "builds a kernel: make guests"]
fn an_e1000_with_the_kernels_driver_gives_no_complaints() {
    if has_no_guests() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    let dir = tempfile::tempdir().unwrap();
    let cable = Nic::stream(dir.path().join("cable"));
    let left = Guest::builder("left").nic(cable.clone().listen().mac("52:54:00:00:00:01")).start().unwrap();
    left.qmp("query-status", serde_json::json!({})).unwrap();
    let right = Guest::builder("right").kernel(Release::Debug).cpus(2);
    let right = right.nic(cable.model("e1000").mac("52:54:00:00:00:02")).start().unwrap();
    for (guest, address) in [(&left, "10.0.0.1"), (&right, "10.0.0.2")] {
        guest.ok(&format!("ip link set eth0 up; ip addr add {address}/24 dev eth0")).unwrap();
    }
    assert!(right.ok("ethtool -i eth0").unwrap().contains("driver: e1000"));
    assert!(left.ok("ping -c 3 10.0.0.2").unwrap().contains("3 packets received"));
    let server = left.start("iperf3 -s").unwrap();
    left.until("netstat -ltn | grep -q :5201", PATIENCE).unwrap();
    for direction in ["", "-R"] {
        let report = right.ok_within(&format!("iperf3 -t 3 {direction} -c 10.0.0.1"), PATIENCE).unwrap();
        println!("{report}");
        assert!(report.contains("iperf Done"));
    }
    drop(server);
    right.ok("rmmod e1000 && insmod /modules/e1000.ko").unwrap();
    assert_eq!(complaints(&right), [""; 0]);
}

/// Builds the module of `faults.c` for this kernel. Returns its path.
fn faults(kernel: &Kernel, dir: &Path) -> PathBuf {
    std::fs::write(dir.join("faults.c"), include_str!("faults.c")).unwrap();
    std::fs::write(dir.join("Kbuild"), "obj-m := faults.o\n").unwrap();
    let made = Command::new(kernel.headers().unwrap().join("make")).arg(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir.join("faults.ko")
}

#[test]
#[ignore = "builds a kernel: make guests"]
fn each_fault_of_a_module_is_a_complaint() {
    if has_no_guests() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    let dir = tempfile::tempdir().unwrap();
    let module = faults(&Kernel::get(Release::Debug).unwrap(), dir.path());
    let guest = Guest::builder("faulty").kernel(Release::Debug).program(module).start().unwrap();
    guest.ok("insmod /usr/bin/faults.ko fault=none && rmmod faults").unwrap();
    assert_eq!(complaints(&guest), [""; 0]);
    // The last one ends lockdep (Linux, mm/kasan/report.c: LOCKDEP_NOW_UNRELIABLE).
    for (fault, complaint) in [
        ("order", "WARNING: possible circular locking dependency detected"),
        ("sleep", "BUG: sleeping function called from invalid context"),
        ("leak", "kmemleak: unreferenced object"),
        ("overrun", "BUG: KASAN: slab-out-of-bounds in faults_init"),
    ] {
        guest.ok_within(&format!("insmod /usr/bin/faults.ko fault={fault} && rmmod faults"), PATIENCE).unwrap();
        let found = complaints(&guest);
        assert!(found.iter().any(|line| line.contains(complaint)), "{fault}: {found:#?}");
    }
}
