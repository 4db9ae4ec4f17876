//! Which frames a NIC receives: addresses, groups, VLANs.

use std::time::Instant;

use ringway_client::Port;
use ringway_scenes::frame;

use super::*;
use crate::e1000::long::vlan;
use crate::features::pings;
use crate::scene::address;

/// More frames than the guest's own traffic has.
const MANY: u64 = 100;
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
/// The drivers' VLAN in [`vlan`], and another one.
const VLAN: u16 = 5;
const OTHER_VLAN: u16 = 6;

/// A port that sends frames to one NIC of the first guest, and counts what its driver receives.
struct Probe<'a> {
    daemon: &'a Daemon,
    guest: &'a Guest,
    nic: usize,
    port: Port,
}

impl Probe<'_> {
    fn taken(&mut self, sent: &[u8]) -> Result<u64, String> {
        let name = port(0, self.nic);
        let seen = || {
            let port = self.daemon.port(&name);
            let counts = [&port["out"]["frames"], &port["drops"]["receiver_filtered"]];
            counts.map(|count| count.as_u64().unwrap_or(0)).iter().sum::<u64>()
        };
        let (before, seen_before) = (statistic(self.guest, self.nic, "rx_packets")?, seen());
        for _ in 0..MANY {
            until("there is room", || self.port.tx().push(sent));
            self.port.flush();
        }
        until("the port has handled the frames", || seen() >= seen_before + MANY);
        // When the pings are answered, the guest has counted all earlier frames.
        pings(self.guest, &address(1, self.nic), &[64])?;
        Ok(statistic(self.guest, self.nic, "rx_packets")? - before)
    }

    fn expect(&mut self, what: &str, all: bool, sent: &[u8]) -> Result<(), String> {
        // What the driver has written to a register takes effect when Ringway's thread for the port has read it.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match (self.taken(sent)?, all) {
                (MANY.., true) => return Ok(()),
                (came, false) if came < MANY / 2 => return Ok(()),
                (came, _) if Instant::now() > deadline => return Err(format!("{what}: {came} of {MANY} came")),
                _ => {}
            }
        }
    }
}

fn probe<'a>(daemon: &'a Daemon, guest: &'a Guest, nic: usize) -> Result<Probe<'a>, String> {
    let port = daemon.attach(&format!("lan{nic}:probe")).map_err(|error| error.to_string())?;
    Ok(Probe { daemon, guest, nic, port })
}

/// A NIC receives frames to other addresses and to groups only if its driver has set the filters for that.
pub fn addresses(daemon: &Daemon, guest: &Guest, nic: usize) -> Result<(), String> {
    let mut probe = probe(daemon, guest, nic)?;
    let to = |to: [u8; 6]| frame(to, SENDER, 0);
    probe.expect("another address", false, &to(STRANGER))?;
    probe.expect("a group", false, &to(GROUP))?;
    probe.expect("broadcast", true, &to([0xff; 6]))?;
    let interface = format!("eth{nic}");
    while_inside(guest, &format!("member {interface} 02:00:00:00:00:77 01:00:5e:01:02:03"), || {
        probe.expect("a second address", true, &to(STRANGER))?;
        probe.expect("a joined group", true, &to(GROUP))?;
        probe.expect("a third address", false, &to([2, 0, 0, 0, 0, 0x78]))?;
        probe.expect("another group", false, &to([1, 0, 0x5e, 1, 2, 0x43]))
    })?;
    probe.expect("another address, after it was the second one", false, &to(STRANGER))?;
    probe.expect("a group, after it was left", false, &to(GROUP))?;
    // More addresses than the NIC has places for.
    let many: String = (0x70..0x80).map(|last| format!(" 02:00:00:00:00:{last:x}")).collect();
    while_inside(guest, &format!("member {interface}{many}"), || {
        probe.expect("one of sixteen more addresses", true, &to([2, 0, 0, 0, 0, 0x7f]))
    })?;
    tell(guest, &format!("ifconfig {interface} allmulti"))?;
    probe.expect("a group, in all-multicast mode", true, &to(GROUP))?;
    probe.expect("another address, in all-multicast mode", false, &to(STRANGER))?;
    tell(guest, &format!("ifconfig {interface} -allmulti promisc"))?;
    probe.expect("another address, in promiscuous mode", true, &to(STRANGER))?;
    probe.expect("a group, in promiscuous mode", true, &to(GROUP))?;
    tell(guest, &format!("ifconfig {interface} -promisc"))?;
    probe.expect("another address, after promiscuous mode", false, &to(STRANGER))
}

/// A broadcast with a tag.
fn tagged(vlan: u16) -> Vec<u8> {
    let plain = frame([0xff; 6], SENDER, 0);
    [&plain[..12], &[0x81, 0], &vlan.to_be_bytes(), &plain[12..]].concat()
}

/// A NIC receives frames of the VLANs that its driver has set, unless it is promiscuous or the filter is off.
pub fn vlans(daemon: &Daemon, guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    vlan(guests, nic)?;
    let (guest, interface) = (&guests[0], format!("eth{nic}"));
    tell(guest, &format!("ip link add link {interface} name v5 type vlan id {VLAN}; ip link set v5 up"))?;
    let mut probe = probe(daemon, guest, nic)?;
    let inner = || -> Result<u64, String> {
        let said = tell(guest, "cat /sys/class/net/v5/statistics/rx_packets")?;
        said.trim().parse().map_err(|_| said.clone())
    };
    for setting in ["rxvlan on", "rxvlan off", "rxvlan on"] {
        tell(guest, &format!("ethtool -K {interface} {setting}"))?;
        let before = inner()?;
        probe.expect(&format!("its VLAN, {setting}"), true, &tagged(VLAN))?;
        let came = inner()? - before;
        if came < MANY {
            return Err(format!("{came} of {MANY} came to the VLAN's device, {setting}"));
        }
        probe.expect(&format!("another VLAN, {setting}"), false, &tagged(OTHER_VLAN))?;
    }
    tell(guest, &format!("ifconfig {interface} promisc"))?;
    probe.expect("another VLAN, in promiscuous mode", true, &tagged(OTHER_VLAN))?;
    tell(guest, &format!("ifconfig {interface} -promisc"))?;
    probe.expect("another VLAN, after promiscuous mode", false, &tagged(OTHER_VLAN))?;
    tell(guest, &format!("ethtool -K {interface} rx-vlan-filter off"))?;
    probe.expect("another VLAN, with the filter off", true, &tagged(OTHER_VLAN))?;
    tell(
        guest,
        &format!("ethtool -K {interface} rx-vlan-filter on; ip link set {interface} down; ip link set {interface} up"),
    )?;
    linked(guest, nic)?;
    probe.expect("another VLAN, after the interface was down", false, &tagged(OTHER_VLAN))?;
    probe.expect("its VLAN, after the interface was down", true, &tagged(VLAN))?;
    tell(guest, "ip link del v5").map(drop)
}
