//! A switch with guests on it.

use std::fmt::Write;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringway_guests::{Builder, Guest, Nic};
use ringway_testing::skip;

use ringway_scenes::Daemon;

/// Tests that run at once: their guests wait most of the time.
const AT_ONCE: usize = 2;
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A test's turn.
pub struct Turn(());

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// Returns true if each kind is tried in each way, as `make guests` does: for every change, some of each.
pub fn is_whole() -> bool {
    std::env::var_os("RINGWAY_GUESTS_WHOLE").is_some()
}

/// Waits for this test's turn. Returns `None` if guests are skipped.
pub fn turn() -> Option<Turn> {
    if std::env::var_os("RINGWAY_NO_QEMU").is_some() {
        skip::note("guests are left out, as RINGWAY_NO_QEMU is set");
        return None;
    }
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = ENDED.wait_while(running, |running| *running >= AT_ONCE).unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    Some(Turn(()))
}

/// Returns the configuration of a vhost-user port.
pub fn port(name: &str, switch: &str, more: &str) -> String {
    format!("[port.{name}]\nswitch = \"{switch}\"\nkind = \"vhost-user\"\nsocket = \"{name}.sock\"\n{more}\n")
}

/// Returns a NIC on the port `name`. QEMU connects to the port.
pub fn nic(daemon: &Daemon, name: &str) -> Nic {
    Nic::vhost_user(daemon.runtime_dir().join(format!("{name}.sock")))
}

/// Returns the IPv4 address of guest `guest` on its NIC `nic`.
pub fn address(guest: usize, nic: usize) -> String {
    format!("10.77.{nic}.{}", guest + 1)
}

/// Returns the IPv6 address of guest `guest` on its NIC `nic`.
pub fn address6(guest: usize, nic: usize) -> String {
    format!("fd77:{nic}::{}", guest + 1)
}

/// Returns the MAC address of guest `guest`'s NIC `nic`.
pub fn mac(guest: usize, nic: usize) -> String {
    format!("52:54:00:00:{nic:02x}:{:02x}", guest + 1)
}

/// Gives guest number `guest` its addresses on NICs 0 to `nics`.
pub fn addresses(on: &Guest, guest: usize, nics: usize) {
    for nic in 0..nics {
        let mut command = format!("echo 0 >/proc/sys/net/ipv6/conf/eth{nic}/accept_dad; ");
        let _ = write!(command, "ifconfig eth{nic} {} netmask 255.255.255.0 up; ", address(guest, nic));
        let _ = write!(command, "ip addr add {}/64 dev eth{nic}", address6(guest, nic));
        on.ok(&command).unwrap();
    }
}

/// Waits until a port has this state. Returns the time taken.
pub fn wait_for(daemon: &Daemon, port: &str, state: &str) -> Duration {
    let start = Instant::now();
    daemon.until_state(port, state);
    start.elapsed()
}

/// Starts guests at once and waits for all.
pub fn boot<const N: usize>(builders: [Builder; N]) -> [Guest; N] {
    let guests = builders.map(|builder| builder.start().unwrap());
    for guest in &guests {
        guest.ready().unwrap();
    }
    guests
}

/// Runs `check` with every kind of NIC, and reports the errors of all of them. A kind is a name and a port's keys.
pub fn with_each(kinds: &[(&str, &str)], what: &str, mut check: impl FnMut(usize) -> Result<(), String>) {
    let mut wrong = Vec::new();
    for (nic, (name, _)) in kinds.iter().enumerate() {
        let start = Instant::now();
        if let Err(why) = check(nic) {
            wrong.push(format!("{name}: {what}: {why}"));
        }
        println!("{name}: {what}: {:?}", start.elapsed());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
