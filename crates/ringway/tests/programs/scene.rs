//! A switch with a program, and clients of its ports.

use std::path::Path;
use std::time::Duration;

use ringway_client::Port;
use ringway_scenes::{Daemon, receive, send, settle};
use serde_json::Value;

/// A daemon whose switch `lan0` has a program, with clients of its ports.
pub struct Scene {
    pub daemon: Daemon,
    clients: Vec<Client>,
    /// How often the program was interrupted.
    interrupted: u64,
}

struct Client {
    name: String,
    port: Port,
    /// Frames that the switch has taken from it.
    taken: u64,
}

/// The keys of a switch that make a program its forwarding function.
pub fn forwarding(module: &Path, config: &str) -> String {
    format!("forwarding = {}\n", table(module, &[("config", config)]))
}

/// The table of a program with these further keys.
pub fn table(module: &Path, keys: &[(&str, &str)]) -> String {
    // JSON's strings are TOML's, too.
    let text = |text: &str| Value::from(text).to_string();
    let keys: String = keys.iter().map(|(key, value)| format!(", {key} = {}", text(value))).collect();
    format!("{{ program = {}{keys} }}", text(module.to_str().unwrap()))
}

impl Scene {
    /// Starts a daemon, and clients of ports of these names.
    pub fn start(module: &Path, config: &str, ports: &[&str]) -> Scene {
        Scene::with("", module, config, ports)
    }

    /// The same with further configuration before the switch.
    pub fn with(before: &str, module: &Path, config: &str, ports: &[&str]) -> Scene {
        Scene::of(&format!("{before}[switch.lan0]\n{}", forwarding(module, config)), ports)
    }

    /// The same with a whole configuration.
    pub fn of(config: &str, ports: &[&str]) -> Scene {
        let daemon = Daemon::start(config);
        let mut scene = Scene { daemon, clients: Vec::new(), interrupted: 0 };
        ports.iter().for_each(|name| scene.attach(name));
        scene
    }

    pub fn attach(&mut self, name: &str) {
        let port = self.daemon.attach(&format!("lan0:{name}")).unwrap();
        self.clients.push(Client { name: name.to_owned(), port, taken: 0 });
    }

    /// Ends a client, and waits until its port has gone.
    pub fn leave(&mut self, name: &str) {
        self.clients.retain(|client| client.name != name);
        ringway_scenes::until("the port is gone", || self.daemon.port(name).is_null());
    }

    /// Sends a frame, and returns the names of the ports that get it, which is unchanged. Again, if the program was interrupted as the hypervisor
    /// took its processor away: that counts as its time.
    pub fn send(&mut self, from: &str, frame: &[u8]) -> Vec<&str> {
        let mut receivers = self.send_once(from, frame);
        while receivers.is_empty() && self.was_interrupted() {
            receivers = self.send_once(from, frame);
        }
        receivers.into_iter().map(|client| self.clients[client].name.as_str()).collect()
    }

    fn was_interrupted(&mut self) -> bool {
        let times = self.program()["faults"]["time"].as_u64().unwrap_or(0);
        std::mem::replace(&mut self.interrupted, times) < times
    }

    fn send_once(&mut self, from: &str, frame: &[u8]) -> Vec<usize> {
        let sender = self.clients.iter_mut().find(|client| client.name == from).expect("a client of this name");
        send(&mut sender.port, frame);
        settle(&self.daemon, from, &mut sender.port, sender.taken + 1);
        sender.taken += 2;
        let mut receivers = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            while let Some(received) = receive(&mut client.port, Duration::ZERO) {
                assert_eq!(received, frame, "at {}", client.name);
                receivers.push(number);
            }
        }
        receivers
    }

    /// The status of the program.
    pub fn program(&self) -> Value {
        self.daemon.status()["switches"][0]["program"].clone()
    }

    /// Frames that the program has dropped for this reason of its own.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.program()["drops"][reason].as_u64().unwrap_or(0)
    }
}
