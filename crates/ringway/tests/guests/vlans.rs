//! The VLAN devices of a Linux guest behind a trunk, and guests behind untagged ports.

use ringway_guests::{Guest, bulk};

use crate::features::pings;
use crate::scene::{boot, mac, nic, port, turn};
use ringway_scenes::Daemon;

/// VLANs of the trunk. The last one is the native VLAN, which is also the default of the other port.
const VLANS: [u16; 3] = [10, 20, 1];

/// Returns the VLAN device of the guest with the trunk.
fn device(vlan: u16) -> String {
    if vlan == 1 { "eth0".to_owned() } else { format!("eth0.{vlan}") }
}

fn scene() -> (Daemon, [Guest; 2]) {
    let ports = [
        port("trunk", "lan0", "trunk = [10, \"20-29\"]\nnative = 1"),
        port("p10", "lan0", "vlan = 10"),
        port("p20", "lan0", "vlan = 20"),
        port("p1", "lan0", ""),
    ];
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.concat()));
    let trunk = Guest::builder("trunk").nic(nic(&daemon, "trunk").mac(&mac(0, 0)));
    let mut others = Guest::builder("others");
    for (at, vlan) in VLANS.iter().enumerate() {
        others = others.nic(nic(&daemon, &format!("p{vlan}")).mac(&mac(1, at)));
    }
    let guests = boot([trunk, others]);
    guests[0].ok("for m in llc stp garp mrp 8021q; do insmod /modules/$m.ko; done; ip link set eth0 up").unwrap();
    for (at, vlan) in VLANS.iter().enumerate() {
        let device = device(*vlan);
        if *vlan != 1 {
            guests[0].ok(&format!("ip link add link eth0 name {device} type vlan id {vlan}")).unwrap();
        }
        let to_trunk = format!("ip link set {device} up; ip addr add 10.{vlan}.0.1/24 dev {device}");
        guests[0].ok(&to_trunk).unwrap();
        guests[1].ok(&format!("ip link set eth{at} up; ip addr add 10.{vlan}.0.2/24 dev eth{at}")).unwrap();
    }
    (daemon, guests)
}

#[test]
fn vlan_devices_of_linux_reach_the_ports_of_their_vlan_with_segments() {
    let Some(_turn) = turn() else { return };
    let (daemon, [trunk, others]) = scene();
    let traffic = |port: &str| {
        let out = daemon.port(port)["out"].clone();
        (out["frames"].as_u64().unwrap(), out["bytes"].as_u64().unwrap())
    };
    bulk::serve(&trunk).unwrap();
    bulk::serve(&others).unwrap();
    for vlan in VLANS {
        let (here, there) = (format!("10.{vlan}.0.1"), format!("10.{vlan}.0.2"));
        pings(&trunk, &there, &[0, 18, 64, 1472, 10_000]).unwrap_or_else(|why| panic!("VLAN {vlan}: {why}"));
        bulk::transfer(&trunk, &others, &there, 4).unwrap();
        bulk::transfer(&others, &trunk, &here, 4).unwrap();
        for (from, address, receiver) in [(&trunk, &there, format!("p{vlan}")), (&others, &here, "trunk".to_owned())] {
            let before = traffic(&receiver);
            bulk::rate(from, address, 1).unwrap();
            let after = traffic(&receiver);
            let (frames, bytes) = (after.0 - before.0, after.1 - before.1);
            assert!(bytes / frames > 3000, "VLAN {vlan} to {receiver}: {bytes} bytes in {frames} frames");
        }
    }
    for port in ["trunk", "p10", "p20", "p1"] {
        let drops = daemon.port(port)["drops"].clone();
        assert!(drops.get("bad_offload").is_none() && drops.get("receiver_down").is_none(), "{port}: {drops}");
    }
    for guest in [&trunk, &others] {
        let sums = guest.ok("grep Tcp: /proc/net/snmp | tail -n 1 | tr ' ' '\\n' | tail -n 1").unwrap();
        assert_eq!(sums.trim(), "0", "segments with a wrong checksum");
    }
}
