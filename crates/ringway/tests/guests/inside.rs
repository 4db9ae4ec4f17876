//! Ringway in a guest: with the kernel of Debian 12, Linux 6.1, whose XDP sockets take no frame in several pieces, and with a new
//! kernel and NICs whose drivers have AF_XDP zero copy.

use ringway_guests::{Guest, Nic, Release, bulk};
use ringway_scenes::{PATIENCE, binary, until};
use serde_json::{Value, json};

use crate::features::{MIB, pings_or};
use crate::scene::{is_whole, mac, turn};
use crate::shared::Shared;
use crate::streams::name;

/// The station on the wire, in the guest's first namespace, and the station behind the switch, in another one.
const WIRE: &str = "10.78.0.1";
const VM: &str = "10.78.0.2";
/// Enters the namespace of the station behind the switch.
const IN_VM: &str = "nsenter --net=/run/netns/vm";
const RINGWAY: &str = "ringway --runtime-dir /tmp/ringway";
/// NICs whose drivers have AF_XDP zero copy. virtio_net has it for a device behind the IOMMU, if the device can reset single rings.
const ZERO_COPY: [&str; 2] = ["igb", "virtio-net-pci,disable-legacy=on,iommu_platform=on"];

static SCENE: Shared<Guest> = Shared::new(TESTS, scene);
pub const TESTS: &[&str] =
    &["inside::an_xdp_port_works_with_linux_6_1", "inside::frames_that_do_not_fit_are_counted_and_others_pass"];

/// Starts a guest in which Ringway runs. A port is to be made of `veth0`, whose other end is the wire.
fn scene() -> Guest {
    let guest = Guest::builder("host").goes_first().program(binary()).start().unwrap();
    guest.ok("insmod /modules/veth.ko").unwrap();
    // The kernel names the other end.
    guest.ok("ip link add w0 type veth").unwrap();
    wire(&guest, "w0");
    serve(&guest);
    guest
}

/// Makes a device the wire.
fn wire(guest: &Guest, device: &str) {
    guest.ok(&format!("ip link set {device} up; ip addr add {WIRE}/24 dev {device}")).unwrap();
}

/// Starts Ringway, with a TAP port for the station behind the switch.
fn serve(guest: &Guest) {
    guest.ok("insmod /modules/tun.ko").unwrap();
    guest.ok("mkdir -p /run/netns; touch /run/netns/vm; unshare --net=/run/netns/vm ip link set lo up").unwrap();
    // An idle poller must not take the emulated processor from the rest of the guest.
    let config = r#"[engine]\nidle = "sleep"\n[switch.lan0]\n[port.t0]\nswitch = "lan0"\nkind = "tap"\nnetns = "vm"\n"#;
    guest.ok(&format!("printf '{config}' >/tmp/ringway.toml")).unwrap();
    guest.start(&format!("{RINGWAY} run --config /tmp/ringway.toml")).unwrap();
    guest.until(&format!("{RINGWAY} status && {IN_VM} ip link show dev t0"), PATIENCE).unwrap();
    guest.ok(&format!("{IN_VM} ip addr add {VM}/24 dev t0")).unwrap();
}

/// Returns the port's part of the status.
fn port(guest: &Guest) -> Value {
    let status: Value = serde_json::from_str(&guest.ok(&format!("{RINGWAY} status --json")).unwrap()).unwrap();
    // See `pings`.
    let is_slow = |fault: &Value| fault["reason"] == "slow_client";
    assert!(status["faults"].as_array().is_none_or(|faults| faults.iter().all(is_slow)), "{status}");
    status["ports"].as_array().unwrap().iter().find(|port| port["name"] == "nic").unwrap().clone()
}

/// Sends data by TCP to the address of the namespace that `to` enters.
fn transfer(guest: &Guest, from: &str, to: &str, address: &str) {
    let sent = bulk::make(guest, MIB).unwrap();
    let job = guest.start(&format!("{to} nc -l -p 7000 -e sh -c 'md5sum >&3' 3>&1")).unwrap();
    guest.until(&format!("{to} netstat -ltn | grep -q ':7000 '"), PATIENCE).unwrap();
    guest.ok(&format!("{from} nc {address} 7000 -e cat /tmp/data")).unwrap();
    assert_eq!(bulk::received(guest, &job).unwrap(), sent, "to {address}");
}

/// Sends pings to the station behind the switch. Pings that are lost while a port is set aside are sent again: an emulated processor, which
/// does not see when it does not run, takes that for the time of a port.
fn pings(guest: &Guest, sizes: &[u32]) {
    let lost = || {
        let status: Value = serde_json::from_str(&guest.ok(&format!("{RINGWAY} status --json")).unwrap()).unwrap();
        let lost = |port: &Value| port["drops"]["receiver_slow"].as_u64().unwrap_or(0);
        status["ports"].as_array().unwrap().iter().map(lost).sum()
    };
    pings_or(guest, VM, sizes, lost).unwrap();
}

#[test]
#[ignore = "a boot for an older kernel: make guests"]
fn an_xdp_port_works_with_linux_6_1() {
    let Some(guest) = SCENE.turn() else { return };
    assert!(guest.ok("uname -r").unwrap().starts_with("6.1."));
    // In generic mode the kernel gives the port segments of local devices uncut, which before Linux 6.6 are too long for it.
    guest.ok("ethtool -K w0 tso off").unwrap();
    for (mode, got) in [("auto", "copy"), ("generic", "generic")] {
        let keys = format!("switch=lan0 kind=xdp device=veth0 host=false mode={mode}");
        // The kernel frees the queue of a port that was deleted a moment later.
        guest.until(&format!("{RINGWAY} port add nic {keys}"), PATIENCE).unwrap();
        assert_eq!(port(&guest)["xdp"], json!({ "mode": got, "queues": 1, "checksums": "software" }));
        talk(&guest, mode);
        guest.ok(&format!("{RINGWAY} port del nic")).unwrap();
    }
}

/// Sends pings and data between the wire and the station behind the switch.
fn talk(guest: &Guest, what: &str) {
    pings(guest, &[0, 18, 64, 1000, 1472, 10_000]);
    let port = port(guest);
    let is_known = |reason: &String| ["receiver_down", "receiver_slow"].contains(&reason.as_str());
    assert!(port["drops"].as_object().unwrap().keys().all(is_known), "{what}: {port}");
    transfer(guest, IN_VM, "", WIRE);
    transfer(guest, "", IN_VM, VM);
}

/// Each NIC is joined with another one, which is the wire.
#[test]
fn nics_with_zero_copy_work_with_it_and_without() {
    let Some(_turn) = turn() else { return };
    let builder = Guest::builder("host").goes_first().kernel(Release::TrixieBackports);
    let mut builder = builder.memory_mib(512).program(binary());
    for (hub, model) in ZERO_COPY.into_iter().enumerate() {
        let end = |number: usize| Nic::netdev(&format!("hubport,hubid={hub}")).mac(&mac(0, 2 * hub + number));
        builder = builder.nic(end(0)).nic(end(1).model(model));
    }
    let guest = builder.start().unwrap();
    name(&guest);
    serve(&guest);
    for (hub, model) in ZERO_COPY.into_iter().enumerate() {
        let (peer, card) = (format!("eth{}", 2 * hub), format!("eth{}", 2 * hub + 1));
        wire(&guest, &peer);
        for mode in if is_whole() { &["copy", "zero-copy"][..] } else { &["zero-copy"] } {
            let keys = format!("switch=lan0 kind=xdp device={card} host=false mode={mode}");
            // The kernel frees the queue of a port that was deleted a moment later.
            guest.until(&format!("{RINGWAY} port add nic {keys}"), PATIENCE).unwrap();
            assert_eq!(port(&guest)["xdp"], json!({ "mode": mode, "queues": 1, "checksums": "software" }), "{model}");
            // igb loses its carrier for a time when it gets a program.
            guest.until(&format!("ping -c 1 -W 1 {VM}"), PATIENCE).unwrap();
            talk(&guest, &format!("{model}, {mode}"));
            lose_carrier(&guest, &format!("net{}", 2 * hub + 1));
            guest.ok(&format!("{RINGWAY} port del nic")).unwrap();
        }
        guest.ok(&format!("ip addr flush dev {peer}")).unwrap();
    }
}

/// Takes the NIC that QEMU calls `nic` off its network, and back.
fn lose_carrier(guest: &Guest, nic: &str) {
    let link = |up: bool| guest.qmp("set_link", json!({ "name": nic, "up": up })).unwrap();
    let lost = || port(guest)["drops"]["receiver_down"].as_u64().unwrap_or(0);
    let before = lost();
    link(false);
    until("frames to a NIC without a carrier are counted", || {
        guest.run(&format!("{IN_VM} ping -c 2 -i 0.1 -W 1 {WIRE}")).unwrap();
        lost() > before
    });
    link(true);
    guest.until(&format!("ping -c 1 -W 1 {VM}"), PATIENCE).unwrap();
}

/// A longer frame takes two pieces, and from the device one takes more than the room behind the 256 bytes that the kernel leaves.
#[test]
fn frames_that_do_not_fit_are_counted_and_others_pass() {
    let Some(guest) = SCENE.turn() else { return };
    guest.ok("ip link set w0 mtu 3000; ip link set veth0 mtu 3000").unwrap();
    guest.ok(&format!("{IN_VM} ip link set t0 mtu 3000")).unwrap();
    // The kernel frees the queue of a port that was deleted a moment later.
    let add = format!("{RINGWAY} port add nic switch=lan0 kind=xdp device=veth0 host=false");
    guest.until(&add, PATIENCE).unwrap();
    // Frames of 1,792 bytes.
    pings(&guest, &[1750]);
    let lost = |by: &str| port(&guest)["drops"][by].as_u64().unwrap_or(0);
    assert_eq!((lost("receiver_too_small"), lost("device_overrun")), (0, 0));
    guest.run(&format!("{IN_VM} ping -c 3 -i 0.02 -W 1 -s 2500 {WIRE}")).unwrap();
    until("the frames are counted", || lost("receiver_too_small") >= 3);
    guest.run(&format!("ping -c 3 -i 0.02 -W 1 -s 2500 {VM}")).unwrap();
    until("the frames are counted", || lost("device_overrun") >= 3);
    pings(&guest, &[18, 1750]);
    assert_eq!((lost("receiver_too_small"), lost("device_overrun")), (3, 3));
    guest.ok(&format!("{RINGWAY} port del nic")).unwrap();
    guest.ok("ip link set w0 mtu 1500; ip link set veth0 mtu 1500").unwrap();
    guest.ok(&format!("{IN_VM} ip link set t0 mtu 1500")).unwrap();
}
