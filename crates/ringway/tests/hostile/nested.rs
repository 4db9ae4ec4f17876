//! The lock of the kernel that nested epoll instances share: any user of the machine can hold it.

use std::fs;
use std::os::unix::net::UnixStream;

use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, until};
use ringway_testing::skip;

use crate::holders::{Holder, NEEDS, Program, can_hold};
use crate::scene::{Scene, impatient, turn};
use crate::{e1000, vhost};

/// The configuration of a port of each kind, in this namespace with the device `x0`.
fn every_kind(namespace: &Namespace) -> String {
    let port =
        |name: &str, kind: &str, keys: &str| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"{kind}\"\n{keys}\n");
    let netns = format!("netns = \"{}\"", namespace.name);
    [
        vhost::config(1),
        port("nic", "e1000", ""),
        port("far", "stream", ""),
        port("t0", "tap", &netns),
        port("x", "xdp", &format!("device = \"x0\"\n{netns}")),
        port("w", "packet", &format!("device = \"w0\"\n{netns}")),
    ]
    .concat()
}

/// Returns the descriptors of this process that are epoll instances.
fn epoll_instances(pid: u32) -> Vec<String> {
    let is_instance = |number: &String| {
        fs::read_link(format!("/proc/{pid}/fd/{number}")).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]")
    };
    let all = fs::read_dir(format!("/proc/{pid}/fd")).expect("the daemon lives");
    all.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(is_instance).collect()
}

/// Returns the descriptors that an epoll instance watches (proc_pid_fdinfo(5)).
fn watched_by(pid: u32, instance: &str) -> Vec<String> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{instance}")).expect("the daemon lives");
    info.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next()).map(str::to_owned).collect()
}

fn devices() -> Namespace {
    let namespace = Namespace::new();
    namespace.ok("ip", &["link", "add", "x0", "type", "veth", "peer", "name", "w0"]);
    namespace
}

#[test]
fn no_epoll_instance_of_the_daemon_is_in_another_whatever_ports_there_are() {
    let namespace = devices();
    let scene = Scene::with(turn(), impatient(&every_kind(&namespace)));
    let _front = vhost::FrontEnd::attach(&scene, 1);
    let _nic = e1000::Nic::attach(&scene, "nic");
    let _far = UnixStream::connect(scene.daemon.runtime_dir().join("far.sock")).expect("a port listens");
    scene.daemon.until_state("far", "up");
    let pid = scene.daemon.pid();
    let instances = epoll_instances(pid);
    let watched: Vec<_> = instances.iter().map(|instance| watched_by(pid, instance)).collect();
    assert!(watched.iter().map(Vec::len).sum::<usize>() > 10, "{watched:?}");
    for instance in &instances {
        assert!(!watched.iter().flatten().any(|in_it| in_it == instance), "{instance} is in another: {watched:?}");
    }
}

#[test]
fn whoever_holds_the_lock_of_nested_epoll_instances_holds_up_neither_pollers_nor_new_ports() {
    if !can_hold() {
        skip!("{NEEDS}");
    }
    let (program, namespace) = (Program::compile("nested"), devices());
    let scene = Scene::start_with(&every_kind(&namespace));
    // A holder lets go after two seconds, in which a busy machine may get nothing done: then there is another one.
    let mut number = 0;
    until("ports of all kinds come and go while the lock is held", || {
        let holder = Holder::start(&program, &[]);
        number += 1;
        let front = vhost::FrontEnd::attach(&scene, 1);
        let nic = e1000::Nic::attach(&scene, "nic");
        let far = UnixStream::connect(scene.daemon.runtime_dir().join("far.sock")).expect("a port listens");
        scene.daemon.until_state("far", "up");
        let client = scene.attach(&format!("c{number}"));
        let tap = format!("lan0:t{number}");
        scene.daemon.ok(&["port", "add", &tap, "kind=tap", &format!("netns={}", namespace.name)]);
        scene.bystanders.go_on(1000);
        let has_held = holder.holds();
        drop((holder, front, nic, far, client));
        scene.daemon.ok(&["port", "del", &tap]);
        for port in ["evil", "nic", "far"] {
            scene.daemon.until_state(port, "waiting");
        }
        has_held
    });
}

#[test]
fn a_daemon_starts_while_the_lock_of_nested_epoll_instances_is_held() {
    if !can_hold() {
        skip!("{NEEDS}");
    }
    let (program, namespace) = (Program::compile("nested"), devices());
    let _turn = turn();
    until("a daemon starts while the lock is held", || {
        let holder = Holder::start(&program, &[]);
        let daemon = Daemon::start(&every_kind(&namespace));
        drop(daemon.attach("lan0:client").expect("a port"));
        holder.holds()
    });
}
