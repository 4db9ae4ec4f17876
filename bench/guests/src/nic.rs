//! Network cards of a guest.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::qemu::{ANY, Accel, IGB, MILLISECONDS, STREAM_RECONNECTS, VFIO_USER, Version};

/// How long QEMU waits for an answer of a vfio-user server before it gives up on the server for good.
const ANSWER_MILLIS: u32 = 60_000;

/// A virtual NIC, as it is described to QEMU.
#[derive(Debug, Clone)]
pub struct Nic {
    backend: Backend,
    model: String,
    queues: u16,
    options: Vec<String>,
}

#[derive(Debug, Clone)]
enum Backend {
    VhostUser { socket: PathBuf, listen: bool, reconnect: Option<u32> },
    Stream { socket: PathBuf, listen: bool, reconnect: Option<u32> },
    VfioUser { socket: PathBuf },
    Other(String),
}

impl Nic {
    /// virtio-net with a vhost-user back end at the socket `socket`, which QEMU connects to. Where QEMU emulates the
    /// CPU, the NIC has no MSI-X: QEMU 7.2 crashes on vhost-user with MSI-X there.
    pub fn vhost_user(socket: impl Into<PathBuf>) -> Nic {
        Nic::new(Backend::VhostUser { socket: socket.into(), listen: false, reconnect: None })
    }

    /// A NIC whose frames go over the stream socket `socket`, which QEMU connects to.
    pub fn stream(socket: impl Into<PathBuf>) -> Nic {
        Nic::new(Backend::Stream { socket: socket.into(), listen: false, reconnect: None })
    }

    /// The PCI device of the vfio-user server at the socket `socket`, which QEMU connects to. The server decides on its
    /// model and address. The device is on a port of its own and can be unplugged ([`Guest::unplug`]).
    ///
    /// [`Guest::unplug`]: crate::Guest::unplug
    pub fn vfio_user(socket: impl Into<PathBuf>) -> Nic {
        Nic::new(Backend::VfioUser { socket: socket.into() })
    }

    /// virtio-net with another back end, in the syntax of QEMU's `-netdev`, without its `id`:
    /// `tap,ifname=tap0,script=no`.
    pub fn netdev(backend: &str) -> Nic {
        Nic::new(Backend::Other(backend.to_owned()))
    }

    fn new(backend: Backend) -> Nic {
        Nic { backend, model: "virtio-net-pci".to_owned(), queues: 1, options: Vec::new() }
    }

    /// Makes QEMU listen on the vhost-user or stream socket. With vhost-user, QEMU waits until the other side connects.
    pub fn listen(mut self) -> Nic {
        if let Backend::VhostUser { listen, .. } | Backend::Stream { listen, .. } = &mut self.backend {
            *listen = true;
        }
        self
    }

    /// Makes QEMU reconnect every `seconds` after the vhost-user or stream connection is lost.
    pub fn reconnect(mut self, seconds: u32) -> Nic {
        if let Backend::VhostUser { reconnect, .. } | Backend::Stream { reconnect, .. } = &mut self.backend {
            *reconnect = Some(seconds);
        }
        self
    }

    /// Sets the hardware address.
    pub fn mac(self, mac: &str) -> Nic {
        self.option(&format!("mac={mac}"))
    }

    /// Sets the number of queue pairs (default 1). The guest uses at most as many as it has CPUs.
    pub fn queues(mut self, pairs: u16) -> Nic {
        self.queues = pairs;
        self
    }

    /// Adds options of the device, in the syntax of QEMU's `-device`: `packed=on`, `mrg_rxbuf=off,csum=off`.
    pub fn option(mut self, options: &str) -> Nic {
        self.options.push(options.to_owned());
        self
    }

    /// Sets another model than `virtio-net-pci`: `e1000`, `igb`, `rtl8139`.
    pub fn model(mut self, model: &str) -> Nic {
        self.model = model.to_owned();
        self
    }

    /// Returns the oldest QEMU that supports this NIC.
    pub(crate) fn oldest_qemu(&self) -> Version {
        match &self.backend {
            Backend::VfioUser { .. } => VFIO_USER,
            Backend::Stream { reconnect: Some(_), .. } => STREAM_RECONNECTS,
            _ if self.model.starts_with("igb") => IGB,
            _ => ANY,
        }
    }

    /// Returns QEMU's arguments for NIC number `number`.
    pub(crate) fn args(&self, number: usize, accel: Accel, qemu: Version) -> Vec<String> {
        let mut args = Vec::new();
        let (mut netdev, mut device) = (String::new(), format!("{},netdev=net{number},romfile=", self.model));
        let again = |reconnect: &Option<u32>| match reconnect {
            Some(seconds) if qemu >= MILLISECONDS => format!(",reconnect-ms={}", seconds * 1000),
            Some(seconds) => format!(",reconnect={seconds}"),
            None => String::new(),
        };
        match &self.backend {
            Backend::Other(backend) => netdev.push_str(backend),
            Backend::VhostUser { socket, listen, reconnect } => {
                let listen = if *listen { ",server=on" } else { "" };
                let chardev = format!("socket,id=nic{number},path={}{listen}{}", socket.display(), again(reconnect));
                if accel == Accel::Tcg {
                    device.push_str(",vectors=0");
                }
                args.extend(["-chardev".to_owned(), chardev]);
                let _ = write!(netdev, "vhost-user,chardev=nic{number}");
            }
            Backend::Stream { socket, listen, reconnect } => {
                let server = if *listen { "on" } else { "off" };
                let (socket, again) = (socket.display(), again(reconnect));
                let _ = write!(netdev, "stream,server={server},addr.type=unix,addr.path={socket}{again}");
            }
            Backend::VfioUser { .. } => {
                let root = format!("pcie-root-port,id=root{number},chassis={}", number + 1);
                let device = self.plug(number).to_string();
                return ["-device", &root, "-device", &device].map(str::to_owned).into();
            }
        }
        let _ = write!(netdev, ",id=net{number}");
        if self.queues > 1 {
            let _ = write!(netdev, ",queues={}", self.queues);
            device.push_str(",mq=on");
        }
        for option in &self.options {
            let _ = write!(device, ",{option}");
        }
        args.extend(["-netdev".to_owned(), netdev, "-device".to_owned(), device]);
        args
    }

    /// Returns the QMP arguments that plug a vfio-user device into the port of NIC number `number`, at the start or
    /// later. The device has no ROM, even if the server offers one, and a long time limit for answers from a server on
    /// a busy machine.
    pub(crate) fn plug(&self, number: usize) -> Value {
        let mut device = json!({
            "driver": "vfio-user-pci", "id": format!("nic{number}"), "bus": format!("root{number}"), "rombar": 0,
            "x-msg-timeout": ANSWER_MILLIS,
        });
        if let Backend::VfioUser { socket } = &self.backend {
            device["socket"] = json!({ "type": "unix", "path": socket });
        }
        for (name, value) in self.options.iter().flat_map(|some| some.split(',')).filter_map(|one| one.split_once('='))
        {
            device[name] = match (value, value.parse::<u64>()) {
                ("on" | "off", _) => json!(value == "on"),
                (_, Ok(value)) => json!(value),
                _ => json!(value),
            };
        }
        device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Version = (7, 2);
    const NEW: Version = (10, 1);

    #[test]
    fn a_nic_is_told_to_qemu() {
        let nic = Nic::vhost_user("/s").mac("52:54:00:00:00:01").queues(2).option("packed=on").reconnect(1);
        assert_eq!(
            nic.args(0, Accel::Tcg, OLD).join(" "),
            "-chardev socket,id=nic0,path=/s,reconnect=1 -netdev vhost-user,chardev=nic0,id=net0,queues=2 \
             -device virtio-net-pci,netdev=net0,romfile=,vectors=0,mq=on,mac=52:54:00:00:00:01,packed=on"
        );
        assert!(nic.args(0, Accel::Tcg, NEW).join(" ").contains("path=/s,reconnect-ms=1000 "));
        assert!(!nic.args(0, Accel::Kvm, NEW).join(" ").contains("vectors"));
        let tap = Nic::netdev("tap,ifname=tap0,script=no").model("e1000");
        let said = "-netdev tap,ifname=tap0,script=no,id=net1 -device e1000,netdev=net1,romfile=";
        assert_eq!(tap.args(1, Accel::Tcg, OLD).join(" "), said);
        assert!(Nic::vhost_user("/s").listen().args(0, Accel::Tcg, OLD)[1].ends_with("path=/s,server=on"));
    }
    #[test]
    fn a_stream_is_told_to_a_qemu_that_knows_how_to_reconnect() {
        let nic = Nic::stream("/s").model("rtl8139");
        let said = "-netdev stream,server=off,addr.type=unix,addr.path=/s,id=net0 -device rtl8139,netdev=net0,romfile=";
        assert_eq!((nic.oldest_qemu(), nic.args(0, Accel::Tcg, OLD).join(" ").as_str()), (ANY, said));
        let nic = nic.reconnect(2);
        assert!(nic.oldest_qemu() > OLD);
        assert!(nic.args(0, Accel::Tcg, NEW)[1].ends_with(",addr.path=/s,reconnect-ms=2000,id=net0"));
        assert!(nic.listen().args(0, Accel::Tcg, OLD)[1].starts_with("stream,server=on,"));
    }

    #[test]
    fn a_vfio_user_nic_is_a_device_on_a_port_of_its_own() {
        let nic = Nic::vfio_user("/s").option("x-no-posted-writes=on,x-msg-timeout=7");
        let args = nic.args(2, Accel::Tcg, NEW);
        assert_eq!(args[..3], ["-device", "pcie-root-port,id=root2,chassis=3", "-device"]);
        let device: Value = serde_json::from_str(&args[3]).unwrap();
        assert_eq!(device["socket"], json!({ "type": "unix", "path": "/s" }));
        assert_eq!(
            (&device["bus"], &device["rombar"], &device["x-msg-timeout"]),
            (&json!("root2"), &json!(0), &json!(7))
        );
        assert_eq!(device["x-no-posted-writes"], json!(true));
    }
}
