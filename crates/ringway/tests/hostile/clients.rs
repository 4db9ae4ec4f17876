//! Clients that die, stop, or never read. They are other processes, which are ended by their process id.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ringway_client::{Port, Shape};
use ringway_scenes::{Daemon, frame, send, until, whole};
use ringway_testing::child::Ended;
use rustix::process::{Pid, Signal};

use crate::attacker::{EVIL, PEER};
use crate::scene::Scene;

/// Environment variable of processes that a test starts as clients.
const PART: &str = "RINGWAY_HOSTILE_PART";

/// A client in its own process. Dropping it kills the process.
pub struct Other(Ended);

impl Other {
    /// Starts this program as a client with this role, and waits until its ports are attached.
    pub fn start(daemon: &Daemon, part: &str, name: &str, ports: usize) -> Self {
        let part = format!("{part} {} {name} {ports}", daemon.runtime_dir().join("attach.sock").display());
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "clients::play_a_part", "--ignored", "--nocapture"])
            .env(PART, part)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let mut child = Ended(child);
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let attached = lines.map_while(Result::ok).any(|line| line.ends_with("attached"));
        assert!(attached, "the client's process did not attach");
        Self(child)
    }

    pub fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(self) {
        drop(self.0);
    }
}

/// The main function of the client processes. It is not a test by itself.
#[test]
#[ignore = "other tests start it as a process of its own"]
fn play_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let words: Vec<&str> = part.split(' ').collect();
    let [part, socket, name, ports] = words[..] else { panic!("{part}") };
    let attach = |number: usize| {
        let name = if number == 0 { format!("lan0:{name}") } else { format!("lan0:{name}{number}") };
        Port::attach(socket, &name, Shape::default()).expect("a port")
    };
    let mut ports: Vec<Port> = (0..ports.parse().expect("a number")).map(attach).collect();
    println!("attached");
    loop {
        for port in &mut ports {
            match part {
                "send" => while port.tx().push(&frame(PEER, EVIL, 1)) {},
                _ => {
                    let _ = port.wait_rx(std::time::Duration::from_millis(100));
                    port.rx().drain(512, |_| {});
                }
            }
            port.flush();
        }
        // The parent process has ended, so this process ends, too.
        if rustix::process::getppid().is_none_or(|parent| parent == Pid::INIT) {
            return;
        }
    }
}

#[test]
fn clients_killed_in_mid_batch_leave_nothing_behind() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    peer.introduce(PEER);
    for _ in 0..whole(5, 20) {
        let other = Other::start(&scene.daemon, "send", "evil", 1);
        until("the client sends", || {
            peer.port.rx().drain(512, |_| {});
            scene.daemon.port("evil")["in"]["frames"].as_u64() > Some(1000)
        });
        other.kill();
        until("the client's port is gone", || scene.daemon.port("evil").is_null());
    }
    drop(peer);
    scene.end();
}

#[test]
fn a_stopped_client_loses_its_own_frames_only_and_goes_on_when_continued() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    let other = Other::start(&scene.daemon, "receive", "evil", 1);
    other.signal(Signal::STOP);
    (0..511).for_each(|_| send(&mut peer.port, &frame([0xff; 6], PEER, 0)));
    until("the client's ring is full", || {
        send(&mut peer.port, &frame([0xff; 6], PEER, 0));
        scene.drops("evil", "receiver_full") >= 10
    });
    scene.bystanders.go_on(2000);
    assert_eq!(scene.daemon.port("evil")["state"], "up", "a slow client has no fault");
    other.signal(Signal::CONT);
    let given = scene.daemon.port("evil")["out"]["frames"].as_u64();
    until("the client receives again", || {
        send(&mut peer.port, &frame([0xff; 6], PEER, 0));
        scene.daemon.port("evil")["out"]["frames"].as_u64() > given
    });
    other.signal(Signal::STOP);
    other.kill();
    until("the client's port is gone", || scene.daemon.port("evil").is_null());
    drop(peer);
    scene.end();
}

#[test]
fn a_client_that_never_reads_is_counted_as_full_and_the_others_receive() {
    let scene = Scene::start();
    let _silent: Vec<_> = (0..50).map(|number| scene.attach(&format!("silent{number}"))).collect();
    let (mut peer, mut reader) = (scene.attach("peer"), scene.attach("reader"));
    // More than the rings of those that do not read have room for.
    const FRAMES: u32 = 600;
    for number in 0..FRAMES {
        send(&mut peer.port, &frame([0xff; 6], PEER, number as u8));
        assert_eq!(reader.receive_from(PEER), frame([0xff; 6], PEER, number as u8));
    }
    let is_silent = |name: &str| name.starts_with("silent");
    until("lost frames are counted at the full receivers", || {
        let status = scene.daemon.status();
        let ports = status["ports"].as_array().expect("a list");
        let silent: Vec<_> = ports.iter().filter(|port| port["name"].as_str().is_some_and(is_silent)).collect();
        let is_full =
            |port: &serde_json::Value| port["out"]["frames"] == 511 && port["drops"]["receiver_full"] == FRAMES - 511;
        silent.len() == 50 && silent.into_iter().all(is_full)
    });
    assert_eq!(scene.daemon.port("peer")["drops"], serde_json::json!({}));
    drop((_silent, peer, reader));
    until("all ports are gone", || scene.daemon.status()["ports"].as_array().map(Vec::len) == Some(2));
    scene.end();
}
