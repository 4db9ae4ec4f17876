//! Many clients: one after another, and all at once.

use std::time::Instant;

use ringway_client::{Port, Shape};
use ringway_scenes::{Daemon, PATIENCE_VARIABLE, until, whole};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clients::Other;
use crate::raw::Raw;
use crate::scene::{Scene, turn};

/// The smallest port, because these tests need many ports.
const SMALL: Shape =
    Shape { tx_rings: 1, rx_rings: 1, tx_slots: 8, rx_slots: 8, buffer_size: 128, extra_buffers: 0, offload: false };

fn port_count(daemon: &Daemon) -> usize {
    daemon.status()["ports"].as_array().expect("a list").len()
}

#[test]
fn thousands_of_clients_come_and_go_and_leave_nothing_behind() {
    let (clean, kills) = whole((1500, 6), (8000, 40));
    let scene = Scene::start();
    let socket = scene.daemon.runtime_dir().join("attach.sock");
    let start = Instant::now();
    for number in 0..clean {
        // A name is free only after the switch has seen the end of its client. Two alternating names would wait.
        let name = format!("lan0:c{}", number % 64);
        let mut port = Port::attach(&socket, &name, if number % 8 == 0 { Shape::default() } else { SMALL });
        let deadline = Instant::now() + ringway_scenes::PATIENCE;
        while port.as_ref().is_err_and(|e| e.to_string().contains("is in use")) && Instant::now() < deadline {
            port = Port::attach(&socket, &name, SMALL);
        }
        drop(port.expect("a port for each client"));
    }
    println!("{clean} clean ends in {:?}", start.elapsed());
    let start = Instant::now();
    for round in 0..kills {
        let other = Other::start(&scene.daemon, "send", &format!("k{round}-"), 50);
        other.kill();
    }
    println!("{} ports ended by {kills} SIGKILLs in {:?}", 50 * kills, start.elapsed());
    until("all ports are gone", || port_count(&scene.daemon) == 2);
    scene.end();
}

#[test]
fn hundreds_of_ports_at_once_come_and_go() {
    // More than the soft limit of descriptors allows.
    let (count, bystanders) = (whole(400, 2000), 2);
    let most = count + bystanders;
    let mut scene = Scene::start_with(&format!("[attach]\nmax_ports = {most}\n[switch.lan0]\n"));
    let socket = scene.daemon.runtime_dir().join("attach.sock");
    // Each client takes four descriptors, in this process and in the daemon.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    // Small leaks show in the thousands of the other test.
    for round in 0..2 {
        let start = Instant::now();
        let attach = |number| Port::attach(&socket, &format!("lan0:p{number}"), SMALL).expect("a port");
        let ports: Vec<Port> = (0..count).map(attach).collect();
        println!("{count} attached in {:?}", start.elapsed());
        let why = Port::attach(&socket, "lan0:more", SMALL).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains(&format!("{most} clients are attached: [attach] max_ports allows no more")), "{why}");
        assert_eq!(port_count(&scene.daemon), most);
        scene.bystanders.go_on(2000);
        let start = Instant::now();
        drop(ports);
        until("all ports are gone", || port_count(&scene.daemon) == bystanders);
        println!("{count} gone in {:?}", start.elapsed());
        if round == 0 {
            scene.allow_for_the_first_round(16 << 10);
        }
    }
    scene.end();
}

#[test]
fn without_descriptors_clients_are_refused_and_later_let_in_again() {
    let turn = turn();
    // One process, with privileges: without them, what all of this user's programs have sent and nobody has received counts for the limit, too.
    let way = ["env", "-u", PATIENCE_VARIABLE, "prlimit", "--nofile=96:96"];
    let daemon = Daemon::start_alone_by(&way, "[switch.lan0]\n");
    let scene = Scene::with(turn, daemon);
    let socket = scene.daemon.runtime_dir().join("attach.sock");
    for _ in 0..3 {
        let (mut ports, mut why) = (Vec::new(), String::new());
        while why.is_empty() && ports.len() < 64 {
            match Port::attach(&socket, &format!("lan0:p{}", ports.len()), SMALL) {
                Ok(port) => ports.push(port),
                Err(error) => why = error.to_string(),
            }
        }
        assert!(ports.len() > 3, "{} clients were accepted; then {why}", ports.len());
        let clear = ["no file descriptors left", "Too many open files"];
        assert!(clear.iter().any(|words| why.contains(words)), "{why}");
        // Silent connections take the remaining descriptors.
        let silent: Vec<Raw> = (0..20).map(|_| Raw::connect(&scene.daemon)).collect();
        scene.bystanders.go_on(2000);
        drop((ports, silent));
        until("there are descriptors again", || Port::attach(&socket, "lan0:again", SMALL).is_ok());
        until("all ports are gone", || port_count(&scene.daemon) == 2);
    }
    scene.end();
}
