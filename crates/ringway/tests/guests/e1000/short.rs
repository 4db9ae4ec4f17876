//! The short tests of NICs, for every change.

use std::process::Command;

use ringway_scenes::until;
use serde_json::json;

use super::long::load;
use super::*;

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
    // A self-test mostly sleeps.
    with_each("the drivers' self-test", |nic| {
        std::thread::scope(|scope| {
            let running = guests.each_ref().map(|guest| scope.spawn(move || self_test(guest, nic)));
            running.into_iter().try_for_each(|test| test.join().expect("no panic"))
        })
    });
    with_each("link down and up", |nic| link(&daemon, &guests[0], nic));
    no_faults(&daemon);

    kill_between_messages(&mut daemon, &guests, NICS.len());
    for (number, guest) in guests.iter().enumerate() {
        put_in_again(&daemon, guest, number, REMOVABLE).unwrap();
        scene::addresses(guest, number, REMOVABLE + 1);
    }
    talk(&guests, REMOVABLE).unwrap();
    no_faults(&daemon);

    // The load keeps unread messages in the connection at most times.
    (0..2).for_each(|from| load(&guests[from], &address(1 - from, REMOVABLE)).unwrap());
    for (number, guest) in guests.iter().enumerate() {
        daemon.ok(&["port", "del", &port(number, REMOVABLE)]);
        // It has ended by itself if its NIC went first.
        guest.run("killall ping").unwrap();
    }
}

/// Kills Ringway when it has read all messages of the guests' NICs, `nics` each, and starts it again. If a killed process has unread
/// messages, the kernel resets the connection, and QEMU (11.1) then aborts with a failed assertion.
pub fn kill_between_messages(daemon: &mut Daemon, guests: &[Guest; 2], nics: usize) {
    guests.iter().for_each(|guest| guest.qmp("stop", json!({})).map(drop).unwrap());
    until("all messages are read", || unread(daemon, nics) == 0);
    daemon.replace();
    guests.iter().for_each(|guest| guest.qmp("cont", json!({})).map(drop).unwrap());
}

/// Returns the number of bytes in the sockets of the guests' NICs that Ringway has not read.
fn unread(daemon: &Daemon, nics: usize) -> u64 {
    let said = Command::new("ss").args(["--no-header", "--unix", "--numeric"]).output().unwrap();
    assert!(said.status.success(), "ss: {}", String::from_utf8_lossy(&said.stderr));
    let (text, dir) = (String::from_utf8(said.stdout).unwrap(), daemon.runtime_dir());
    let here: Vec<&str> = text.lines().filter(|line| line.contains(&format!("{}/", dir.display()))).collect();
    assert_eq!(here.len(), 2 * nics, "connections of NICs: {text}");
    here.iter().map(|line| line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()).sum()
}

/// Runs the driver's whole self-test. In mapped registers the guest can write all bits, so the register test then fails
/// at the first register with read-only bits (RDTR).
pub fn self_test(guest: &Guest, nic: usize) -> Result<(), String> {
    let said = guest.run(&format!("ethtool -t eth{nic} offline"));
    let said = said.map_err(|error| error.to_string())?;
    let results: Vec<&str> =
        said.text.lines().filter_map(|line| line.split_once("line)")).map(|(_, n)| n.trim()).collect();
    let expected = if NICS[nic].0.ends_with("mapped") { ["10272", "0", "0", "0", "0"] } else { ["0"; 5] };
    if results == expected { Ok(()) } else { Err(said.text) }
}

/// Sets the link on the command line, and checks the carrier in the guest.
pub fn link(daemon: &Daemon, guest: &Guest, nic: usize) -> Result<(), String> {
    for (link, carrier) in [("down", 0), ("up", 1)] {
        daemon.ok(&["port", "set", &port(0, nic), &format!("link={link}")]);
        let seen = format!("[ $(cat /sys/class/net/eth{nic}/carrier) = {carrier} ]");
        guest.until(&seen, PATIENCE).map_err(|error| error.to_string())?;
        until("the status shows the link", || daemon.port(&port(0, nic))["e1000"]["link"] == link);
    }
    pings(guest, &address(1, nic), &[64])
}
