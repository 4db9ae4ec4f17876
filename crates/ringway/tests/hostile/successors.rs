//! What one connection was given, or gave, is not there for the next: the daemon's process has let go of every memory file and
//! eventfd of the first by the time that the second one works, whatever the first keeps. Nor is it in a core file.

#[allow(dead_code, reason = "the tests of the netmap dialogue use the rest")]
#[path = "../libraries/netmap_dialogue/client.rs"]
mod client;

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{OURS, THEIRS, all_of, open};
use ringway_client::{ExternalMemory, Port, Shape};
use ringway_scenes::{Daemon, until};
use ringway_traffic::{E1000Endpoint, E1000Mode, E1000Options, Packed, Split, VirtioEndpoint, VirtioOptions};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Each test looks at all descriptors and mappings of this process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A memory file or an eventfd, by the number that the kernel tells it apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Memory(u64),
    Eventfd(u64),
}

/// What the descriptor at `/proc/PROCESS/fd/NUMBER` names.
fn named_by(process: &Path, number: &str) -> Option<Thing> {
    let link = process.join("fd").join(number);
    let target = fs::read_link(&link).ok()?;
    let target = target.to_str()?;
    if target.starts_with("/memfd:") {
        return Some(Thing::Memory(fs::metadata(&link).ok()?.ino()));
    }
    let about = fs::read_to_string(process.join("fdinfo").join(number)).ok()?;
    let id = about.lines().find_map(|line| line.strip_prefix("eventfd-id:"))?;
    Some(Thing::Eventfd(id.trim().parse().ok()?))
}

/// The numbers of a process's descriptors.
fn descriptors(process: &Path) -> Vec<String> {
    let all = fs::read_dir(process.join("fd")).expect("the process lives").flatten();
    all.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// All that a process has mapped or open.
fn held_by(process: &str) -> BTreeSet<Thing> {
    let process = Path::new("/proc").join(process);
    let open = descriptors(&process).into_iter().filter_map(|number| named_by(&process, &number));
    let maps = fs::read_to_string(process.join("maps")).expect("the process lives");
    let mapped = maps.lines().filter(|line| line.contains("/memfd:"));
    let mapped = mapped.map(|line| Thing::Memory(line.split_whitespace().nth(4).unwrap().parse().unwrap()));
    open.chain(mapped).collect()
}

/// Everything that this process and the daemon both hold.
fn shared_with(daemon: &Daemon) -> BTreeSet<Thing> {
    &held_by("self") & &held_by(&daemon.pid().to_string())
}

/// Duplicates of all descriptors of this process that name such things: the kernel gives the number of a closed eventfd to the next one.
fn duplicates() -> Vec<OwnedFd> {
    let (own, process) = (Path::new("/proc/self"), pidfd_open(getpid(), PidfdFlags::empty()).unwrap());
    let things = descriptors(own).into_iter().filter(|number| named_by(own, number).is_some());
    things.map(|number| pidfd_getfd(&process, number.parse().unwrap(), PidfdGetfdFlags::empty()).unwrap()).collect()
}

/// Two connections, one after the other. The first keeps what it has, and `kept` besides.
fn nothing_is_left<C>(daemon: &Daemon, what: &str, mut connect: impl FnMut() -> C, has_gone: impl Fn() -> bool) {
    let first = connect();
    let shared = shared_with(daemon);
    assert!(shared.len() > 1, "{what}: {shared:?}");
    let kept = duplicates();
    drop(first);
    until("the first connection has gone", has_gone);
    let _second = connect();
    until(&format!("{what}: nothing of the first connection is held"), || {
        (&held_by(&daemon.pid().to_string()) & &shared).is_empty()
    });
    assert!(shared_with(daemon).len() > 1, "{what}: the second connection has things of its own");
    nothing_is_in_core_files(daemon, what);
    drop(kept);
}

/// Checks that core files of the daemon have no memory that it shares (proc(5), `VmFlags`). The kernel maps a ring for the daemon's own
/// asynchronous calls.
fn nothing_is_in_core_files(daemon: &Daemon, what: &str) {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", daemon.pid())).expect("the daemon lives");
    let (mut shared, mut header) = (0, "");
    for line in smaps.lines() {
        let Some(flags) = line.strip_prefix("VmFlags:") else {
            // A header begins with a range of addresses, any other line with a word and a colon.
            header = if line.split(' ').next().is_some_and(|word| word.ends_with(':')) { header } else { line };
            continue;
        };
        let has = |flag: &str| flags.split_whitespace().any(|has| has == flag);
        if has("sh") && !header.contains("[aio]") {
            assert!(has("dd"), "{what}: a core file has {header}");
            shared += 1;
        }
    }
    assert!(shared > 0, "{what}: {smaps}");
}

#[test]
fn front_ends_leave_nothing_to_the_next() {
    let _turn = turn();
    let port = |name: &str, keys: &str| format!("[port.{name}]\nswitch = \"lan0\"\n{keys}\n");
    let daemon = Daemon::start(
        &[
            "[switch.lan0]\n".to_owned(),
            port("mapped", "kind = \"e1000\"\nmodel = \"e1000e\""),
            port("trapped", "kind = \"e1000\"\nmodel = \"e1000e\"\nregisters = \"trapped\""),
            port("old", "kind = \"e1000\"\ncsb = true"),
            port("split", "kind = \"vhost-user\""),
            port("packed", "kind = \"vhost-user\""),
            port("keeping", "kind = \"vhost-user\""),
        ]
        .concat(),
    );
    let waits = |name: &'static str| {
        let daemon = &daemon;
        move || daemon.port(name)["state"] == "waiting"
    };
    let socket = |name: &str| daemon.socket(&format!("{name}.sock"));
    for (name, mode) in [("mapped", E1000Mode::Mapped), ("trapped", E1000Mode::Base), ("old", E1000Mode::Csb)] {
        let options = E1000Options { mode, ..E1000Options::default() };
        let connect = || E1000Endpoint::attach(&socket(name), &options).expect("a NIC");
        nothing_is_left(&daemon, name, connect, waits(name));
    }
    let virtio = VirtioOptions::default();
    nothing_is_left(
        &daemon,
        "split",
        || VirtioEndpoint::<Split>::attach(&socket("split"), &virtio).unwrap(),
        waits("split"),
    );
    nothing_is_left(
        &daemon,
        "packed",
        || VirtioEndpoint::<Packed>::attach(&socket("packed"), &virtio).unwrap(),
        waits("packed"),
    );
    let keeping = VirtioOptions { inflight: true, ..virtio };
    let connect = || VirtioEndpoint::<Split>::attach(&socket("keeping"), &keeping).unwrap();
    nothing_is_left(&daemon, "keeping", connect, waits("keeping"));
}

#[test]
fn clients_of_process_ports_leave_nothing_to_the_next() {
    let _turn = turn();
    let daemon = Daemon::start("[switch.lan0]\n[port.fixed]\nswitch = \"lan0\"\nkind = \"process\"\n");
    for name in ["fixed", "dynamic"] {
        let connect = || daemon.attach(&format!("lan0:{name}")).unwrap();
        nothing_is_left(&daemon, name, connect, || daemon.port(name)["state"] != "up");
    }
    let connect = || {
        let mut memory = ExternalMemory::new(4 << 20, 64).unwrap();
        let port = Port::attach_with_memory(daemon.socket("attach.sock"), "lan0:own", Shape::default(), &mut memory);
        (port.unwrap(), memory)
    };
    nothing_is_left(&daemon, "a client's own memory", connect, || daemon.port("own").is_null());
}

#[test]
fn programs_of_the_netmap_api_leave_nothing_to_those_of_another_family() {
    let _turn = turn();
    let daemon = Daemon::start("[switch.lan0]\n");
    for name in ["lan0:a", "lan0:a{pipe", "lan0:a}pipe"] {
        let mut families = [OURS, THEIRS].into_iter();
        let connect = || {
            let netmap = open(&daemon, families.next().expect("a family"));
            let bound = netmap.register(all_of(name));
            (netmap, bound)
        };
        nothing_is_left(&daemon, name, connect, || daemon.status()["ports"] == serde_json::json!([]));
    }
}

/// A front end stays when its port is renamed: the file with the notes of what is in flight goes with it, and the next port of the
/// old name has one of its own.
#[test]
fn what_was_in_flight_is_noted_for_the_front_end_whatever_its_port_is_called() {
    let _turn = turn();
    let port = |name: &str, socket: &str| {
        format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nsocket = \"{socket}\"\n")
    };
    let mut daemon = Daemon::start(&format!("[switch.lan0]\n{}", port("a", "x.sock")));
    let driver = VirtioEndpoint::<Split>::attach(&daemon.socket("x.sock"), &VirtioOptions::default()).unwrap();
    daemon.until_state("a", "up");
    let notes = |daemon: &Daemon| -> BTreeSet<String> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap();
        maps.lines()
            .filter(|line| line.contains("inflight-"))
            .map(|line| line.split_whitespace().skip(5).collect())
            .collect()
    };
    let path = |daemon: &Daemon, name: &str| daemon.socket(name).display().to_string();
    let first = notes(&daemon);
    assert_eq!(first.len(), 1, "{first:?}");
    daemon.reload(&format!("[switch.lan0]\n{}{}", port("a", "y.sock"), port("b", "x.sock")));
    assert!(daemon.line().starts_with("reloaded: "));
    assert_eq!(daemon.port("b")["state"], "up", "the front end stays");
    let two = notes(&daemon);
    assert!(two.len() == 2 && two.is_superset(&first), "{two:?}");
    // The new port goes, and with it its own notes only.
    daemon.reload(&format!("[switch.lan0]\n{}", port("b", "x.sock")));
    assert!(daemon.line().starts_with("reloaded: "));
    until("the other notes have gone", || notes(&daemon) == first);
    // The next daemon finds them by the socket.
    daemon.replace();
    assert_eq!(notes(&daemon), BTreeSet::from([path(&daemon, ".inflight-x.sock")]));
    drop(driver);
}
