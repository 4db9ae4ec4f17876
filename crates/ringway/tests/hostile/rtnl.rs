//! Somebody holds the kernel's lock of network devices (RTNL), as any user can who has an answer about `lo` written to a page that he does
//! not supply. Ports of devices wait for it, and nobody else.

use std::process::Stdio;

use crate::holders::{Holder, NEEDS, Program, can_hold};
use ringway_scenes::{Daemon, PATIENCE, frame, receive, ringway, send, until};
use ringway_testing::child::{Ended, children, thread_states};
use ringway_testing::skip;
use ringway_testing::skip::is_root;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

/// Runs `ringway ARGS`, without waiting for its end.
fn begin(daemon: &Daemon, args: &[&str]) -> Ended {
    let mut command = ringway();
    command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(args);
    Ended(command.stdout(Stdio::null()).spawn().unwrap())
}

/// Waits until a thread of the daemon waits for the lock. Returns at once when nobody holds it any more.
fn until_waiting(daemon: &Daemon, lock: &Holder) {
    until("the daemon waits for the kernel", || {
        // The opener opens a device, and the keeper closes it last.
        let openers = children(daemon.keeper(), "ringway-opener");
        let mut processes = [daemon.pid(), daemon.keeper()].into_iter().chain(openers);
        !lock.holds() || processes.any(|of| thread_states(of).contains(&'D'))
    });
}

/// Pieces of memory of process ports that the daemon has mapped.
fn mapped(daemon: &Daemon) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap();
    maps.lines().filter(|line| line.contains("/memfd:")).count()
}

/// The daemon answers everybody, and frames flow.
fn serves(daemon: &Daemon) {
    let _ = daemon.status();
    let [mut a, mut b] = ["lan0:a", "lan0:b"].map(|name| daemon.attach(name).expect("a port"));
    send(&mut a, &frame(B, A, 60));
    assert!(receive(&mut b, PATIENCE).is_some(), "a frame between two other ports");
}

#[test]
fn whoever_holds_the_kernels_lock_of_devices_holds_up_ports_of_devices_alone() {
    if !is_root() {
        skip!("needs root");
    }
    if !can_hold() {
        skip!("{NEEDS}");
    }
    let program = Program::compile("devices");
    let name = format!("rt{}", std::process::id());
    let add = ["port", "add", &name, "switch=lan0", "kind=tap"];
    let config = "[switch.lan0]\n[attach]\ncreate = \"ports\"\n";
    let daemon = Daemon::start(config);
    let before = mapped(&daemon);

    // Each part has to come to its end while the lock is held. It may take several tries: the lock is held for a short time.
    until("a port is added, and all others are served", || {
        let lock = Holder::start(&program, &[]);
        let mut adding = begin(&daemon, &add);
        until_waiting(&daemon, &lock);
        serves(&daemon);
        let was_held = lock.holds();
        drop(lock);
        assert_eq!(adding.end().code(), Some(0));
        assert_eq!(daemon.port(&name)["state"], "up");
        daemon.ok(&["port", "del", &name]);
        was_held
    });
    until("a device is closed, and the memory of other ports is given back", || {
        daemon.ok(&add);
        until("former clients' memory is unmapped", || mapped(&daemon) == before);
        let client = daemon.attach("lan0:c").expect("a port");
        assert!(mapped(&daemon) > before);
        let lock = Holder::start(&program, &[]);
        let mut removing = begin(&daemon, &["port", "del", &name]);
        until_waiting(&daemon, &lock);
        drop(client);
        until("its memory is unmapped", || !lock.holds() || mapped(&daemon) == before);
        serves(&daemon);
        let was_held = lock.holds();
        drop(lock);
        assert_eq!(removing.end().code(), Some(0));
        was_held
    });
    until("the file is read again, and all others are served", || {
        let lock = Holder::start(&program, &[]);
        daemon.reload(&format!("{config}[port.{name}]\nswitch = \"lan0\"\nkind = \"tap\"\n"));
        until_waiting(&daemon, &lock);
        serves(&daemon);
        let was_held = lock.holds();
        drop(lock);
        daemon.until_state(&name, "up");
        daemon.reload(config);
        until("the port is gone", || daemon.port(&name).is_null());
        was_held
    });
    until("a successor has its devices again, and serves", || {
        daemon.ok(&add);
        let index = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).expect("the device");
        let lock = Holder::start(&program, &[]);
        daemon.kill_switch();
        assert_eq!(daemon.port(&name)["state"], "up");
        serves(&daemon);
        let was_held = lock.holds();
        drop(lock);
        assert_eq!(std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok(), Some(index));
        daemon.ok(&["port", "del", &name]);
        was_held
    });
    until("a new daemon ends while it waits", || {
        let lock = Holder::start(&program, &[]);
        let mut other = Daemon::start(config);
        let _adding = begin(&other, &["port", "add", &format!("{name}b"), "switch=lan0", "kind=tap"]);
        until_waiting(&other, &lock);
        other.signal(rustix::process::Signal::TERM);
        until("its sockets are gone", || !lock.holds() || !other.socket("control.sock").exists());
        let was_held = lock.holds();
        drop(lock);
        assert_eq!(other.stop().code(), Some(0));
        was_held
    });
}
