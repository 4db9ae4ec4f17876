//! The demo's switch, and its two network namespaces with a TAP port each; both are removed when dropped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::commands::grants::grant;
use ringway_api::client::Client;
use ringway_commands::context::Context;
use ringway_config::keys::Node;

use super::outcome::{NotDone, Outcome, Stop};
use super::patience::PATIENCE;
use super::program::{Program, finish, installed};
use crate::commands::lab::switch_program;

/// ARP requests for an address until it counts as unreachable. The kernel sends one a second.
const PROBES: &str = "300";

/// The two namespaces: their ports, and the addresses of the devices in them.
pub const ENDS: [(&str, &str); 2] = [("left", "10.77.0.1"), ("right", "10.77.0.2")];

/// A switch in a temporary directory. The fields are dropped in their order: the switch ends before its directory is removed.
#[derive(Debug)]
pub struct Stage {
    switch: Program,
    dir: tempfile::TempDir,
}

impl Stage {
    /// Starts a switch.
    pub fn open(stop: &Stop) -> Outcome<Stage> {
        let failed = |what: &str, why: std::io::Error| NotDone::Failed(format!("{what}: {why}"));
        let dir = tempfile::Builder::new().prefix("ringway-demo-").tempdir();
        let dir = dir.map_err(|error| failed("cannot make a temporary directory", error))?;
        let ringway = switch_program().ok_or_else(|| NotDone::Failed("cannot find the ringway command".to_owned()))?;
        let mut switch = Program::start(Command::new(ringway).arg("run").arg("--runtime-dir").arg(dir.path()))?;
        switch.says("ready", stop)?;
        Ok(Stage { switch, dir })
    }

    /// Context of commands for this switch.
    pub fn context(&self) -> Context {
        Context { runtime_dir: self.dir.path().to_owned(), is_default_dir: false }
    }

    /// A client of its administration API.
    pub fn client(&self) -> Client {
        self.context().client().patience(PATIENCE)
    }

    /// Returns true if the switch has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.switch.has_ended()
    }

    /// CPU time that the switch has used; `None`: the kernel does not tell.
    pub fn cpu_time(&self) -> Option<Duration> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process()?)).ok()?;
        let used = |thread: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
            let times = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            times.split_whitespace().next()?.parse().ok()
        };
        Some(Duration::from_nanos(threads.filter_map(used).sum()))
    }

    /// The process of the switch: the child of the program that was started, its keeper, which has one thread.
    fn process(&self) -> Option<u32> {
        let keeper = self.switch.id();
        let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Makes the namespaces, with a TAP port each on the switch lan0.
    pub fn spaces(&self, stop: &Stop) -> Outcome<Spaces> {
        if !rustix::process::geteuid().is_root() {
            let what = "root would add two network namespaces on TAP ports, with ping and iperf3 between them";
            return Err(NotDone::Skipped(what.to_owned()));
        }
        if !installed("ip") {
            return Err(NotDone::Skipped("the namespaces need the Debian package iproute2".to_owned()));
        }
        let mut spaces = Spaces { names: Vec::new() };
        for (end, address) in ENDS {
            let name = format!("ringway-demo-{}-{end}", std::process::id());
            // Noted first, so that a namespace made at the moment of Ctrl-C is deleted as well.
            spaces.names.push(name.clone());
            ip(&["netns", "add", &name], stop)?;
            self.add_tap(end, &name)?;
            // With the kernel's three requests, a switch without a processor for three seconds makes a station unreachable.
            ip(&["-n", &name, "ntable", "change", "name", "arp_cache", "dev", "eth0", "mcast_probes", PROBES], stop)?;
            ip(&["-n", &name, "addr", "add", &format!("{address}/24"), "dev", "eth0"], stop)?;
        }
        Ok(spaces)
    }

    fn add_tap(&self, name: &str, netns: &str) -> Outcome<()> {
        self.add_port(name, &[("kind", "tap"), ("device", "eth0"), ("netns", netns)])
    }

    /// Adds a vhost-user port. Returns the path of its socket.
    pub fn add_seat(&self, name: &str) -> Outcome<PathBuf> {
        self.add_port(name, &[("kind", "vhost-user")])?;
        Ok(self.dir.path().join(format!("{name}.sock")))
    }

    fn add_port(&self, name: &str, keys: &[(&str, &str)]) -> Outcome<()> {
        let failed = |why: String| NotDone::Failed(format!("cannot add port {name}: {why}"));
        let keys = Node::of_texts(&[&[("switch", "lan0")], keys].concat());
        let keys = keys.to_json();
        grant(&self.context(), "port", name, &keys);
        let added = self.client().add_port(&name.parse().map_err(failed)?, &keys);
        added.map(drop).map_err(|error| failed(error.to_string()))
    }
}

/// Network namespaces; deleted when dropped.
#[derive(Debug)]
pub struct Spaces {
    names: Vec<String>,
}

impl Spaces {
    /// Returns a command that runs a program in one of the namespaces, by its number in [`ENDS`].
    pub fn command(&self, end: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], program]);
        command
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in self.names.iter().filter(|name| Path::new("/run/netns").join(name).exists()) {
            // A device leaves a namespace some time after its program has ended. The wait for that has a limit.
            let deadline = Instant::now() + PATIENCE;
            while !Command::new("ip").args(["netns", "del", name]).output().is_ok_and(|done| done.status.success()) {
                if Instant::now() >= deadline {
                    eprintln!(
                        "ringway demo: cannot delete network namespace {name}: do it with \"ip netns del {name}\""
                    );
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn ip(args: &[&str], stop: &Stop) -> Outcome<String> {
    finish(Command::new("ip").args(args), stop)
}
