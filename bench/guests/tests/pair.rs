//! Guests on a cable of QEMU's own: the promises of this library, without any switch.

use std::time::Duration;

use ringway_guests::{Error, Guest, Nic, Release};
use ringway_testing::{PATIENCE, skip};

/// Returns true if guests are left out.
fn has_no_guests() -> bool {
    std::env::var_os("RINGWAY_NO_QEMU").is_some()
}

#[test]
#[ignore = "the tests of Ringway boot guests of either kernel: make guests"]
fn two_guests_of_either_kernel_boot_and_talk() {
    if has_no_guests() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    let dir = tempfile::tempdir().unwrap();
    let cable = Nic::stream(dir.path().join("cable"));
    let left = Guest::builder("left").nic(cable.clone().listen().mac("52:54:00:00:00:01")).start().unwrap();
    // Its end of the cable is there now.
    left.qmp("query-status", serde_json::json!({})).unwrap();
    // Which asks for a newer QEMU than Debian 12's.
    let cable = cable.reconnect(1).mac("52:54:00:00:00:02");
    let right = Guest::builder("right").kernel(Release::Backports).cpus(2).nic(cable).start().unwrap();
    for (guest, address, kernel) in [(&left, "10.0.0.1", "6.1."), (&right, "10.0.0.2", "6.12.")] {
        guest.ok(&format!("ip link set eth0 up; ip addr add {address}/24 dev eth0")).unwrap();
        assert!(guest.ok("uname -r").unwrap().starts_with(kernel));
        assert!(guest.ok("ethtool -i eth0").unwrap().contains("driver: virtio_net"));
    }
    assert_eq!(right.ok("nproc").unwrap().trim(), "2");
    assert!(left.ok("ping -c 3 -i 0.1 10.0.0.2").unwrap().contains("3 packets received"));

    let server = right.start("iperf3 -s -1").unwrap();
    right.until("netstat -ltn | grep -q :5201", PATIENCE).unwrap();
    assert!(left.ok("iperf3 -n 1M -c 10.0.0.2").unwrap().contains("iperf Done"));
    assert_eq!(right.wait(&server, PATIENCE).unwrap().status, 0);
}

#[test]
fn commands_are_answered_exactly_and_a_guest_moves_with_all_it_has() {
    if has_no_guests() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    let builder = Guest::builder("alone").memory_mib(128);
    let guest = builder.start().unwrap();
    assert_eq!(guest.run("echo out; echo err >&2; exit 7").unwrap().status, 7);
    assert_eq!(guest.ok("printf 'no end of line'").unwrap(), "no end of line");
    let long = guest.ok("seq 1 20000").unwrap();
    assert!(long.lines().map(str::to_owned).eq((1..=20000).map(|n| n.to_string())));
    assert!(matches!(guest.ok("false"), Err(Error::Status { output, .. }) if output.status == 1));
    assert!(guest.run("one\ntwo").is_err());
    // A command that was given up does not disturb the next.
    guest.freeze();
    assert!(guest.run_within("echo late", Duration::from_millis(100)).is_err(), "it stands still");
    guest.thaw();
    assert_eq!(guest.ok("echo in time").unwrap(), "in time\n");

    let job = guest.start("for i in $(seq 40); do echo $i; sleep 0.05; done").unwrap();
    let before = guest.pid();
    let guest = guest.migrate(&builder).unwrap();
    assert_ne!(guest.pid(), before);
    let output = guest.wait(&job, PATIENCE).unwrap();
    assert_eq!((output.status, output.text.lines().count()), (0, 40));
}

#[test]
fn a_guest_that_cannot_start_says_why_at_once() {
    if has_no_guests() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    let guest = Guest::builder("lost").nic(Nic::vhost_user("/nowhere/vm.sock")).start().unwrap();
    let why = guest.ready().unwrap_err().to_string();
    assert!(why.contains("guest lost") && why.contains("/nowhere/vm.sock"), "{why}");
    // And not when time is up.
    assert!(why.contains("QEMU has ended with status 1"), "{why}");
}
