//! Ringway in a guest, with the kernel of Debian 12: Linux 6.1, whose XDP sockets take no frame in several pieces.

use ringway_guests::Guest;
use ringway_guests::bulk::{self, TRANSFER};
use ringway_scenes::{PATIENCE, binary};
use serde_json::{Value, json};

use crate::features::pings;
use crate::scene::turn;

/// The station on the wire, in the guest's first namespace, and the station behind the switch, in another one.
const WIRE: &str = "10.78.0.1";
const VM: &str = "10.78.0.2";
/// Enters the namespace of the station behind the switch.
const IN_VM: &str = "nsenter --net=/run/netns/vm";
const RINGWAY: &str = "ringway --runtime-dir /tmp/ringway";

/// Starts a guest in which Ringway runs. A port is to be made of `veth0`, whose other end is the wire.
fn scene() -> Guest {
    let guest = Guest::builder("host").program(binary()).start().unwrap();
    guest.ok("insmod /modules/tun.ko; insmod /modules/veth.ko").unwrap();
    guest.ok("mkdir -p /run/netns; touch /run/netns/vm; unshare --net=/run/netns/vm ip link set lo up").unwrap();
    // The kernel names the other end.
    guest.ok(&format!("ip link add w0 type veth; ip link set w0 up; ip addr add {WIRE}/24 dev w0")).unwrap();
    let config = r#"[switch.lan0]\n[port.t0]\nswitch = "lan0"\nkind = "tap"\nnetns = "vm"\n"#;
    guest.ok(&format!("printf '{config}' >/tmp/ringway.toml")).unwrap();
    guest.start(&format!("{RINGWAY} run --config /tmp/ringway.toml")).unwrap();
    guest.until(&format!("{RINGWAY} status && {IN_VM} ip link show dev t0"), PATIENCE).unwrap();
    guest.ok(&format!("{IN_VM} ip addr add {VM}/24 dev t0")).unwrap();
    guest
}

/// Returns the port's part of the status.
fn port(guest: &Guest) -> Value {
    let status: Value = serde_json::from_str(&guest.ok(&format!("{RINGWAY} status --json")).unwrap()).unwrap();
    assert!(status["faults"].as_array().is_none_or(Vec::is_empty), "{status}");
    status["ports"].as_array().unwrap().iter().find(|port| port["name"] == "nic").unwrap().clone()
}

/// Sends data by TCP to the address of the namespace that `to` enters.
fn transfer(guest: &Guest, from: &str, to: &str, address: &str) {
    let sent = bulk::make(guest, 4).unwrap();
    let job = guest.start(&format!("{to} nc -l -p 7000 -e sh -c 'md5sum >&3' 3>&1")).unwrap();
    guest.until(&format!("{to} netstat -ltn | grep -q ':7000 '"), TRANSFER).unwrap();
    guest.ok_within(&format!("{from} nc {address} 7000 -e cat /tmp/data"), TRANSFER).unwrap();
    assert_eq!(bulk::received(guest, &job).unwrap(), sent, "to {address}");
}

#[test]
fn an_xdp_port_works_with_linux_6_1() {
    let Some(_turn) = turn() else { return };
    let guest = scene();
    assert!(guest.ok("uname -r").unwrap().starts_with("6.1."));
    // In generic mode the kernel gives the port segments of local devices uncut, which before Linux 6.6 are too long for it.
    guest.ok("ethtool -K w0 tso off").unwrap();
    for (mode, got) in [("auto", "copy"), ("generic", "generic")] {
        let keys = format!("switch=lan0 kind=xdp device=veth0 host=false mode={mode}");
        guest.ok(&format!("{RINGWAY} port add nic {keys}")).unwrap();
        assert_eq!(port(&guest)["xdp"], json!({ "mode": got, "queues": 1, "checksums": "software" }));
        pings(&guest, VM, &[0, 18, 64, 1000, 1472, 10_000]).unwrap();
        assert_eq!(port(&guest)["drops"], json!({}), "{mode}");
        transfer(&guest, IN_VM, "", WIRE);
        transfer(&guest, "", IN_VM, VM);
        println!("{mode}: {}", port(&guest));
        guest.ok(&format!("{RINGWAY} port del nic")).unwrap();
    }
}

/// A longer frame takes two pieces, and from the device one takes more than the room behind the 256 bytes that the kernel leaves.
#[test]
fn frames_that_do_not_fit_are_counted_and_others_pass() {
    let Some(_turn) = turn() else { return };
    let guest = scene();
    guest.ok("ip link set w0 mtu 3000; ip link set veth0 mtu 3000").unwrap();
    guest.ok(&format!("{IN_VM} ip link set t0 mtu 3000")).unwrap();
    guest.ok(&format!("{RINGWAY} port add nic switch=lan0 kind=xdp device=veth0 host=false")).unwrap();
    // Frames of 1,792 bytes.
    pings(&guest, VM, &[1750]).unwrap();
    let lost = |by: &str| port(&guest)["drops"][by].as_u64().unwrap_or(0);
    assert_eq!((lost("receiver_too_small"), lost("device_overrun")), (0, 0));
    guest.run(&format!("{IN_VM} ping -c 3 -i 0.02 -W 1 -s 2500 {WIRE}")).unwrap();
    assert_eq!(lost("receiver_too_small"), 3);
    guest.run(&format!("ping -c 3 -i 0.02 -W 1 -s 2500 {VM}")).unwrap();
    assert_eq!(lost("device_overrun"), 3);
    pings(&guest, VM, &[18, 1750]).unwrap();
}
