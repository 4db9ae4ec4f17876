//! Guests of two kernels on e1000 ports, with unmodified drivers: an 82540EM, and an 82574L with its ring registers trapped
//! and mapped.
//!
//! They need a QEMU with vfio-user, which is fetched if the host's is too old. If there is none, the tests are skipped
//! with a message. Tests that take minutes are `#[ignore]`d. `make guests` runs them.

pub mod killed;
pub mod long;
pub mod short;

use ringway_guests::{Builder, Guest, Nic, Qemu, Release};
use ringway_scenes::Daemon;
use ringway_testing::{PATIENCE, skip};

use crate::features::{pings, transfer};
use crate::scene::{self, address, address6, boot, mac, wait_for};

/// The NICs of each guest in their order: a name, and the port's keys.
const NICS: [(&str, &str); 3] = [
    ("e1000", ""),
    ("e1000e, trapped", "model = \"e1000e\"\nregisters = \"trapped\"\n"),
    ("e1000e, mapped", "model = \"e1000e\"\nregisters = \"mapped\"\n"),
];
/// The NIC that can be unplugged. When a vfio-user device with MSI-X, like the 82574L, is unplugged, QEMU (11.1) aborts
/// with a failed assertion.
const REMOVABLE: usize = 0;
const KERNELS: [Release; 2] = [Release::Bookworm, Release::Backports];

/// Waits for this test's turn. Returns `None` if these guests cannot run on this machine.
pub fn turn() -> Option<scene::Turn> {
    let turn = scene::turn()?;
    if let Some(why) = Qemu::no_vfio_user() {
        skip::note(format!("needs a QEMU with vfio-user: {why}"));
        return None;
    }
    Some(turn)
}

/// Returns the port of guest `guest`'s NIC `nic`, which is on switch `lanNIC`.
fn port(guest: usize, nic: usize) -> String {
    format!("{}{nic}", ["a", "b"][guest])
}

/// Returns a configuration with a switch for each kind of NIC, and a port for each guest on it.
fn config() -> String {
    let ports = (0..2).flat_map(|guest| (0..NICS.len()).map(move |nic| (guest, nic)));
    let ports = ports.map(|(guest, nic)| {
        let (name, mac, keys) = (port(guest, nic), mac(guest, nic), NICS[nic].1);
        format!("[port.{name}]\nswitch = \"lan{nic}\"\nkind = \"e1000\"\nmac = \"{mac}\"\nguard = \"off\"\n{keys}")
    });
    let switches = (0..NICS.len()).map(|nic| format!("[switch.lan{nic}]\n"));
    switches.chain(ports).collect()
}

fn card(daemon: &Daemon, guest: usize, nic: usize) -> Nic {
    Nic::vfio_user(daemon.runtime_dir().join(format!("{}.sock", port(guest, nic))))
}

fn builder(daemon: &Daemon, guest: usize) -> Builder {
    let builder = Guest::builder(["a", "b"][guest]).kernel(KERNELS[guest]);
    (0..NICS.len()).fold(builder, |builder, nic| builder.nic(card(daemon, guest, nic)))
}

/// Starts two guests with all NICs and their addresses.
fn scene() -> (Daemon, [Guest; 2]) {
    let daemon = Daemon::start(&config());
    let guests = boot([builder(&daemon, 0), builder(&daemon, 1)]);
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number);
    }
    (daemon, guests)
}

/// Sets a guest's addresses, also if it already has some, and waits for its links.
fn addresses(guest: &Guest, number: usize) {
    guest.ok("for n in $(cd /sys/class/net; echo eth*); do ip addr flush dev $n; done").unwrap();
    scene::addresses(guest, number, NICS.len());
    (0..NICS.len()).for_each(|nic| linked(guest, nic).unwrap());
}

/// Waits until the driver sees the link. That takes seconds on a busy machine.
pub fn linked(guest: &Guest, nic: usize) -> Result<(), String> {
    let linked = format!("[ $(cat /sys/class/net/eth{nic}/carrier) = 1 ]");
    guest.until(&linked, PATIENCE).map_err(|error| error.to_string())
}

/// Runs `check` with every kind of NIC, and reports the errors of all of them.
fn with_each(what: &str, check: impl FnMut(usize) -> Result<(), String>) {
    scene::with_each(&NICS, what, check);
}

/// Runs a command. Returns an error if the command fails.
pub fn tell(guest: &Guest, command: &str) -> Result<String, String> {
    guest.ok(command).map_err(|error| error.to_string())
}

/// Sends pings of some sizes and data, both ways.
pub fn talk(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    for (from, to) in [(0, 1), (1, 0)] {
        pings(&guests[from], &address(to, nic), &[0, 18, 1472, 10_000])?;
        transfer(&guests[from], &guests[to], &address(to, nic))?;
    }
    Ok(())
}

/// Sends pings and data over IPv6, which finds neighbours by multicast.
pub fn talk6(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    pings(&guests[0], &address6(1, nic), &[0, 1452, 10_000])?;
    transfer(&guests[0], &guests[1], &address6(1, nic))?;
    transfer(&guests[1], &guests[0], &address6(0, nic))
}

/// Unplugs a NIC and plugs it in again.
fn put_in_again(daemon: &Daemon, guest: &Guest, number: usize, nic: usize) -> Result<(), String> {
    guest.unplug(nic).map_err(|error| error.to_string())?;
    wait_for(daemon, &port(number, nic), "waiting");
    guest.plug(nic, &card(daemon, number, nic)).map_err(|error| error.to_string())?;
    there(guest, nic)
}

/// Waits until the guest's driver has the NIC.
pub fn there(guest: &Guest, nic: usize) -> Result<(), String> {
    let there = format!("[ -e /sys/class/net/eth{nic} ]");
    guest.until(&there, PATIENCE).map_err(|error| error.to_string())
}

/// Checks that no port has a fault.
pub fn no_faults(daemon: &Daemon) {
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}
