//! `kind = "xdp"`: a network device of the host, by AF_XDP.

use std::collections::BTreeSet;
use std::time::Instant;

use ringway_api::types::{PortStatus, XdpStatus};
use ringway_port_device::xdp;

use super::contract::{CannotOpen, End, Link, Named, Opened, Opening, PortKind, State};
use super::device::Device;
use super::netns;
use crate::keys::form::{Boolean, Choice, Integer, Optional};
use crate::keys::{Keys, Mac, Name, keys};

/// The words of `mode`.
const MODES: [(&str, xdp::Mode); 4] = [
    ("auto", xdp::Mode::Auto),
    ("zero-copy", xdp::Mode::ZeroCopy),
    ("copy", xdp::Mode::Copy),
    ("generic", xdp::Mode::Generic),
];

keys! {
    /// Settings of an XDP port.
    pub struct Xdp {
        mode: xdp::Mode = xdp::Mode::Auto, Choice(&MODES), Fixed, "How frames get from the device to the port: what the device has (auto), by the device itself (zero-copy), copied below the stack (copy) or in it (generic).";
        queues: Option<u32> = None, Optional(Integer(1..=xdp::MAX_QUEUES)), Fixed, "The receive queues that the port takes, so many from the first one; by default all. Frames of the others stay with the host.";
        host: bool = true, Boolean, Fixed, "Whether the host's stack keeps frames to the device's own address, and group frames.";
    }
    groups {
        /// The device.
        device: Device,
    }
}

impl Named for Xdp {
    const NAME: &'static str = "xdp";
    const ABOUT: &'static str = "A network device of the host, physical or virtual, by AF_XDP.";
}

impl PortKind for Xdp {
    fn named(&mut self, name: &Name) {
        self.device.name = name.to_string();
    }

    fn validate(&mut self, name: &Name, keys: &Keys<'_>) {
        self.device.check_name(name, keys);
    }

    fn end(&self) -> End<'_> {
        self.device.end()
    }

    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let wanted =
            xdp::Settings { device: self.device.name.clone(), mode: self.mode, queues: self.queues, host: self.host };
        let keeper = at.keeper.clone();
        let open = move || xdp::open(&wanted, &keeper).map_err(|why| CannotOpen { what: why.to_string(), why });
        let (port, namespace) = netns::inside(self.device.netns.as_deref(), at.namespace.clone(), open)?;
        let xdp::XdpPort { sides, mode, queues, writes_checksums } = port;
        let mode = MODES.iter().find(|(_, has)| *has == mode).map_or("", |(word, _)| word);
        let checksums = if writes_checksums { "device" } else { "software" };
        let status = XdpStatus { mode: mode.to_owned(), queues: queues as u32, checksums: checksums.to_owned() };
        Ok(Opened { sides, link: Some(Box::new(Attached(status))), namespace })
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.device = Some(self.device.name.clone());
    }
}

/// What the device has.
struct Attached(XdpStatus);

impl Link for Attached {
    fn report(&mut self, _: Instant, status: &mut PortStatus) -> Option<State> {
        status.xdp = Some(self.0.clone());
        Some(State::Up)
    }
}
