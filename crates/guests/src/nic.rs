//! Network cards of a guest.

use std::fmt::Write;
use std::path::PathBuf;

use crate::builder::Accel;

/// A virtual NIC: what QEMU is told of it.
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
    Other(String),
}

impl Nic {
    /// virtio-net served by whoever has the vhost-user socket `socket`; QEMU connects to it. Where QEMU emulates the CPU it
    /// has no MSI-X, as QEMU 7.2 crashes on vhost-user with MSI-X there.
    pub fn vhost_user(socket: impl Into<PathBuf>) -> Nic {
        Nic::new(Backend::VhostUser { socket: socket.into(), listen: false, reconnect: None })
    }

    /// virtio-net with another backend, as in QEMU's `-netdev`, without its `id`: `tap,ifname=tap0,script=no`.
    pub fn netdev(backend: &str) -> Nic {
        Nic::new(Backend::Other(backend.to_owned()))
    }

    fn new(backend: Backend) -> Nic {
        Nic { backend, model: "virtio-net-pci".to_owned(), queues: 1, options: Vec::new() }
    }

    /// QEMU makes the vhost-user socket, and waits until the other side connects.
    pub fn listen(mut self) -> Nic {
        if let Backend::VhostUser { listen, .. } = &mut self.backend {
            *listen = true;
        }
        self
    }

    /// When the vhost-user connection is lost, QEMU tries again each `seconds`.
    pub fn reconnect(mut self, seconds: u32) -> Nic {
        if let Backend::VhostUser { reconnect, .. } = &mut self.backend {
            *reconnect = Some(seconds);
        }
        self
    }

    /// Hardware address.
    pub fn mac(self, mac: &str) -> Nic {
        self.option(&format!("mac={mac}"))
    }

    /// Queue pairs, 1 if not said. The guest uses as many as it has CPUs, at most.
    pub fn queues(mut self, pairs: u16) -> Nic {
        self.queues = pairs;
        self
    }

    /// Options of the device, as in QEMU's `-device`: `packed=on`, `mrg_rxbuf=off,csum=off`.
    pub fn option(mut self, options: &str) -> Nic {
        self.options.push(options.to_owned());
        self
    }

    /// Another device than `virtio-net-pci`.
    pub fn model(mut self, model: &str) -> Nic {
        self.model = model.to_owned();
        self
    }

    /// QEMU's arguments for NIC number `number`. `millis`: whether QEMU counts the time to reconnect in milliseconds.
    pub(crate) fn args(&self, number: usize, accel: Accel, millis: bool) -> Vec<String> {
        let mut args = Vec::new();
        let (mut netdev, mut device) = (String::new(), format!("{},netdev=net{number},romfile=", self.model));
        match &self.backend {
            Backend::Other(backend) => netdev.push_str(backend),
            Backend::VhostUser { socket, listen, reconnect } => {
                let mut chardev = format!("socket,id=nic{number},path={}", socket.display());
                if *listen {
                    chardev.push_str(",server=on");
                }
                if let Some(seconds) = reconnect {
                    let _ = if millis {
                        write!(chardev, ",reconnect-ms={}", seconds * 1000)
                    } else {
                        write!(chardev, ",reconnect={seconds}")
                    };
                }
                if accel == Accel::Tcg {
                    device.push_str(",vectors=0");
                }
                args.extend(["-chardev".to_owned(), chardev]);
                let _ = write!(netdev, "vhost-user,chardev=nic{number}");
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_is_told_to_qemu() {
        let nic = Nic::vhost_user("/s").mac("52:54:00:00:00:01").queues(2).option("packed=on").reconnect(1);
        assert_eq!(
            nic.args(0, Accel::Tcg, false).join(" "),
            "-chardev socket,id=nic0,path=/s,reconnect=1 -netdev vhost-user,chardev=nic0,id=net0,queues=2 \
             -device virtio-net-pci,netdev=net0,romfile=,vectors=0,mq=on,mac=52:54:00:00:00:01,packed=on"
        );
        assert!(nic.args(0, Accel::Tcg, true).join(" ").contains("path=/s,reconnect-ms=1000 "));
        assert!(!nic.args(0, Accel::Kvm, true).join(" ").contains("vectors"));
        let tap = Nic::netdev("tap,ifname=tap0,script=no").model("e1000");
        let said = "-netdev tap,ifname=tap0,script=no,id=net1 -device e1000,netdev=net1,romfile=";
        assert_eq!(tap.args(1, Accel::Tcg, false).join(" "), said);
        assert!(Nic::vhost_user("/s").listen().args(0, Accel::Tcg, false)[1].ends_with("path=/s,server=on"));
    }
}
