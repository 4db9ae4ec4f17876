//! The VLAN devices of a Linux guest behind a trunk, and guests behind untagged ports.

use ringway_guests::{Nic, bulk};
use ringway_scenes::Daemon;
use ringway_testing::snmp;

use crate::features::pings;
use crate::pair::{self, PAIR};
use crate::scene::{self, mac, port};

/// VLANs of the trunk. The last one is the native VLAN, which is also the default of the other port.
const VLANS: [u16; 3] = [10, 20, 1];
/// NICs of the guest with the trunk, and of the other one. They are the last ones of the pair.
pub const NICS: [usize; 2] = [1, VLANS.len()];
const TRUNK: usize = pair::VLANS;

/// Returns the name of the port of NIC number `at` of these.
fn name(guest: usize, at: usize) -> String {
    if guest == 0 { "trunk".to_owned() } else { format!("p{}", VLANS[at]) }
}

/// Returns the configuration of their switch.
pub fn config() -> String {
    let ports = [
        port("trunk", "trunks", "trunk = [10, \"20-29\"]\nnative = 1"),
        port("p10", "trunks", "vlan = 10"),
        port("p20", "trunks", "vlan = 20"),
        port("p1", "trunks", ""),
    ];
    format!("[switch.trunks]\n{}", ports.concat())
}

/// Returns NIC number `at` of these.
pub fn nic(daemon: &Daemon, guest: usize, at: usize) -> Nic {
    scene::nic(daemon, &name(guest, at)).mac(&mac(guest, TRUNK + at))
}

/// Returns the VLAN device of the guest with the trunk.
fn device(vlan: u16) -> String {
    if vlan == 1 { format!("eth{TRUNK}") } else { format!("eth{TRUNK}.{vlan}") }
}

#[test]
fn vlan_devices_of_linux_reach_the_ports_of_their_vlan_with_segments() {
    let Some(pair) = PAIR.turn() else { return };
    let (daemon, [trunk, others]) = (&pair.daemon, &pair.guests);
    trunk
        .ok(&format!("for m in llc stp garp mrp 8021q; do insmod /modules/$m.ko; done; ip link set eth{TRUNK} up"))
        .unwrap();
    for (at, vlan) in VLANS.iter().enumerate() {
        let (device, other) = (device(*vlan), format!("eth{}", TRUNK + at));
        if *vlan != 1 {
            trunk.ok(&format!("ip link add link eth{TRUNK} name {device} type vlan id {vlan}")).unwrap();
        }
        trunk.ok(&format!("ip link set {device} up; ip addr add 10.{vlan}.0.1/24 dev {device}")).unwrap();
        others.ok(&format!("ip link set {other} up; ip addr add 10.{vlan}.0.2/24 dev {other}")).unwrap();
    }
    let wrong =
        || [trunk, others].map(|guest| snmp::counter(&guest.ok("cat /proc/net/snmp").unwrap(), "Tcp", "InCsumErrors"));
    let before = wrong();
    let traffic = |port: &str| {
        let out = daemon.port(port)["out"].clone();
        (out["frames"].as_u64().unwrap(), out["bytes"].as_u64().unwrap())
    };
    for vlan in VLANS {
        let (here, there) = (format!("10.{vlan}.0.1"), format!("10.{vlan}.0.2"));
        pings(trunk, &there, &[0, 18, 64, 1472, 10_000]).unwrap_or_else(|why| panic!("VLAN {vlan}: {why}"));
        for (from, to, address, receiver) in
            [(trunk, others, &there, format!("p{vlan}")), (others, trunk, &here, "trunk".to_owned())]
        {
            let before = traffic(&receiver);
            bulk::transfer(from, to, address, 4).unwrap();
            let after = traffic(&receiver);
            let (frames, bytes) = (after.0 - before.0, after.1 - before.1);
            assert!(bytes / frames > 3000, "VLAN {vlan} to {receiver}: {bytes} bytes in {frames} frames");
        }
    }
    for port in ["trunk", "p10", "p20", "p1"] {
        let drops = daemon.port(port)["drops"].clone();
        assert!(drops.get("bad_offload").is_none() && drops.get("receiver_down").is_none(), "{port}: {drops}");
    }
    assert_eq!(wrong(), before, "segments with a wrong checksum");
    for vlan in [10, 20] {
        trunk.ok(&format!("ip link del {}", device(vlan))).unwrap();
    }
    trunk.ok("rmmod 8021q mrp garp stp llc").unwrap();
}
