//! The tests of NICs that every change must pass.

use std::process::Command;

use serde_json::json;

use super::long::load;
use super::*;
use ringway_scenes::until;

#[test]
fn guests_with_unmodified_drivers_talk_pass_their_self_test_and_outlive_ringway() {
    let Some(_turn) = turn() else { return };
    let (mut daemon, guests) = scene();
    for (nic, driver) in ["e1000", "e1000e", "e1000e"].into_iter().enumerate() {
        for guest in &guests {
            let said = guest.ok(&format!("ethtool -i eth{nic}; cat /sys/class/net/eth{nic}/address")).unwrap();
            assert!(said.contains(&format!("driver: {driver}\n")), "{said}");
        }
        assert_eq!(guests[1].ok(&format!("cat /sys/class/net/eth{nic}/address")).unwrap().trim(), mac(1, nic));
    }
    with_each("talk", |nic| talk(&guests, nic));
    with_each("IPv6", |nic| talk6(&guests, nic));
    with_each("the drivers' self-test", |nic| guests.iter().try_for_each(|guest| self_test(guest, nic)));
    with_each("link down and up", |nic| link(&daemon, &guests[0], nic));
    no_faults(&daemon);

    kill_between_messages(&mut daemon, &guests);
    for (number, guest) in guests.iter().enumerate() {
        put_in_again(&daemon, guest, number, REMOVABLE).unwrap();
        scene::addresses(guest, number, REMOVABLE + 1);
    }
    talk(&guests, REMOVABLE).unwrap();
    no_faults(&daemon);

    // While much is said that lies unread for a moment.
    (0..2).for_each(|from| load(&guests[from], &address(1 - from, REMOVABLE)).unwrap());
    for (number, guest) in guests.iter().enumerate() {
        daemon.ok(&["port", "del", &port(number, REMOVABLE)]);
        guest.ok("killall ping").unwrap();
    }
}

/// Kills Ringway, and starts it again, while it has read all that the guests' NICs have said: QEMU (11.1) breaks an assertion of
/// its own, and ends, when a connection is reset, which is what the kernel does if the one who is killed has not.
fn kill_between_messages(daemon: &mut Daemon, guests: &[Guest; 2]) {
    guests.iter().for_each(|guest| guest.qmp("stop", json!({})).map(drop).unwrap());
    until("all messages are read", || unread(daemon) == 0);
    daemon.replace();
    guests.iter().for_each(|guest| guest.qmp("cont", json!({})).map(drop).unwrap());
}

/// Bytes in the sockets of the guests' NICs, which Ringway has not read.
fn unread(daemon: &Daemon) -> u64 {
    let said = Command::new("ss").args(["--no-header", "--unix", "--numeric"]).output().unwrap();
    assert!(said.status.success(), "ss: {}", String::from_utf8_lossy(&said.stderr));
    let (text, dir) = (String::from_utf8(said.stdout).unwrap(), daemon.runtime_dir());
    let here: Vec<&str> = text.lines().filter(|line| line.contains(&format!("{}/", dir.display()))).collect();
    assert_eq!(here.len(), 2 * NICS.len(), "connections of NICs: {text}");
    here.iter().map(|line| line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()).sum()
}

/// What the driver tests, all of it; but registers that are mapped into the guest are memory, all of whose bits can be
/// written, so that the test of registers finds fault with the first of them that has others (RDTR).
pub fn self_test(guest: &Guest, nic: usize) -> Result<(), String> {
    let said = guest.run_within(&format!("ethtool -t eth{nic} offline"), bulk::TRANSFER);
    let said = said.map_err(|error| error.to_string())?;
    let results: Vec<&str> =
        said.text.lines().filter_map(|line| line.split_once("line)")).map(|(_, n)| n.trim()).collect();
    let expected = if NICS[nic].0.ends_with("mapped") { ["10272", "0", "0", "0", "0"] } else { ["0"; 5] };
    if results == expected { Ok(()) } else { Err(said.text) }
}

/// The cable as it is told on the command line, and as the guest sees it.
pub fn link(daemon: &Daemon, guest: &Guest, nic: usize) -> Result<(), String> {
    for (link, carrier) in [("down", 0), ("up", 1)] {
        daemon.ok(&["port", "set", &port(0, nic), &format!("link={link}")]);
        let seen = format!("[ $(cat /sys/class/net/eth{nic}/carrier) = {carrier} ]");
        guest.until(&seen, PATIENCE).map_err(|error| error.to_string())?;
        until("status says so", || daemon.port(&port(0, nic))["e1000"]["link"] == link);
    }
    pings(guest, &address(1, nic), &[64])
}
