//! `kind = "vhost-user"`: the virtio-net of a virtual machine, by a hypervisor that speaks vhost-user.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringway_api::types::{PortStatus, VhostUserStatus};
use ringway_port_vhost_user as port;

use super::contract::{CannotOpen, End, Link, MTU, Named, Opened, Opening, PortKind, State};
use super::features::feature_names;
use super::memory::{FrontEndMemory, set_used};
use super::socket::{Role, Socket, SocketPath};
use crate::keys::form::{Boolean, Integer, Optional};
use crate::keys::{Keys, Mac, Name, keys};

keys! {
    /// Settings of a vhost-user port.
    pub struct VhostUser {
        queues: u16 = port::MOST_QUEUES, Integer(1..=port::MOST_QUEUES), Fixed, "Most queue pairs.";
        mtu: Option<u16> = None, Optional(Integer(MTU)), Fixed, "The MTU that the guest is told, and longer frames are dropped; of a TAP device: that it gets; by default the guest's or the device's own.";
        offload: bool = true, Boolean, Fixed, "Whether checksums and segmentation may be left to the other side.";
        ring_reset: bool = false, Boolean, Fixed, "Whether guests may reset single rings, as ethtool -G and AF_XDP without copies do; only for front ends that pass it on.",
            "QEMU (7.2 to 11.1) does not pass it on: a guest that resets a ring there loses its NIC until it restarts.";
        config_space: bool = false, Boolean, Fixed, "Whether front ends are offered the configuration space of the port: address, link, queue pairs and MTU.",
            "Only for front ends that have none of their own: QEMU 7.1.0 to 7.2.2 crashes, and newer ones warn.";
    }
    groups {
        /// The socket on which the hypervisor connects, or to which the daemon does.
        socket: Socket,
        /// How much memory the front end may give.
        memory: FrontEndMemory,
    }
}

impl Named for VhostUser {
    const NAME: &'static str = "vhost-user";
    const ABOUT: &'static str = "A virtual machine's virtio-net, by a hypervisor that speaks vhost-user.";
}

impl PortKind for VhostUser {
    fn named(&mut self, name: &Name) {
        self.socket.at = SocketPath::of_port(name);
    }

    fn validate(&mut self, _: &Name, keys: &Keys<'_>) {
        self.socket.validate(keys);
    }

    fn end(&self) -> End<'_> {
        End::Socket { path: &self.socket.at.path, listens: self.socket.role == Role::Server }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let wanted = port::Settings {
            label: at.label.to_owned(),
            socket: at.runtime_dir.join(&self.socket.at.path),
            role: self.socket.role.get(),
            access: self.socket.at.access.get(at.access),
            queues: self.queues,
            mtu: self.mtu,
            config_space: self.config_space,
            mac: only(at.macs),
            ring_reset: self.ring_reset,
            offload: self.offload,
            record: Some(record_of(&self.socket.at.path, at.runtime_dir)),
            memory: self.memory.memory.limits(),
        };
        let opened = port::open_kept(&wanted, at.observer.clone(), at.keeper);
        let (sides, port) = opened.map_err(|why| CannotOpen::socket(&self.socket.at.path, why))?;
        Ok(Opened { sides, link: Some(Box::new(FrontEnd { port, seen: None })), namespace: None })
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.memory = Some(self.memory.memory.status());
        status.vhost_user = Some(VhostUserStatus {
            socket: self.socket.at.path.display().to_string(),
            role: self.socket.role.as_str().to_owned(),
            most_queues: self.queues,
            mtu: self.mtu,
            ring_reset: self.ring_reset,
            config_space: self.config_space,
            offload: self.offload,
            ..VhostUserStatus::default()
        });
    }
}

/// Returns the path of the file that notes what is in flight. It has the socket's name, not the port's: a front end keeps its socket when
/// its port is renamed, and the next port of the old name, at another socket, must not write the notes of that front end.
fn record_of(socket: &Path, runtime_dir: &Path) -> PathBuf {
    let path = runtime_dir.join(socket);
    let name = path.strip_prefix(runtime_dir).unwrap_or(&path).display().to_string();
    runtime_dir.join(format!(".inflight-{}", name.replace('%', "%25").replace('/', "%2f")))
}

/// Returns the address that is bound to a port, if there is exactly one.
fn only(macs: &BTreeSet<Mac>) -> Option<[u8; 6]> {
    macs.first().filter(|_| macs.len() == 1).map(|mac| mac.get().octets())
}

/// The control side of a port, with the status of the front end that was seen last.
struct FrontEnd {
    port: port::VhostUser,
    seen: Option<port::Status>,
}

impl Link for FrontEnd {
    fn report(&mut self, until: Instant, status: &mut PortStatus) -> Option<State> {
        if let Some(memory) = &mut status.memory {
            set_used(memory, self.port.memory());
        }
        self.seen = self.port.status_until(until).or(self.seen);
        let seen = self.seen?;
        if let Some(status) = &mut status.vhost_user {
            status.features = feature_names(seen.features);
            status.queues = seen.queues;
            status.ring_size = seen.ring_size;
        }
        Some(seen.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_one_file_of_notes_however_its_path_is_written() {
        let run = Path::new("/run/ringway");
        let of = |socket: &str| record_of(Path::new(socket), run).display().to_string();
        assert_eq!(of("vm1.sock"), "/run/ringway/.inflight-vm1.sock");
        assert_eq!(of("/run/ringway/vm1.sock"), of("vm1.sock"));
        assert_eq!(of("vms/1.sock"), "/run/ringway/.inflight-vms%2f1.sock");
        assert_eq!(of("vms%2f1.sock"), "/run/ringway/.inflight-vms%252f1.sock");
        assert_eq!(of("/srv/1.sock"), "/run/ringway/.inflight-%2fsrv%2f1.sock");
    }
}
