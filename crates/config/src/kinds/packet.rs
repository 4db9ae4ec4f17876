//! `kind = "packet"`: a network device that the host goes on using, by a packet socket; or a macvtap.

use std::collections::BTreeSet;

use ringway_api::types::PortStatus;
use ringway_port_device::{Found, packet};

use super::contract::{CannotOpen, End, Finding, Named, Namespace, Opened, Opening, PortKind};
use super::device::Device;
use super::finding::open_device;
use super::netns;
use crate::keys::{Keys, Mac, Name, keys};

keys! {
    /// Settings of a packet port.
    pub struct Packet {}
    groups {
        /// The device.
        device: Device,
    }
}

impl Named for Packet {
    const NAME: &'static str = "packet";
    const ABOUT: &'static str =
        "A network device that the host goes on using, by a packet socket: NICs, bonds, VLAN devices; or a macvtap.";
}

impl Packet {
    fn wanted(&self, port: &str) -> packet::Settings {
        packet::Settings { device: self.device.name.clone(), port: port.to_owned() }
    }
}

impl PortKind for Packet {
    fn named(&mut self, name: &Name) {
        self.device.name = name.to_string();
    }

    fn validate(&mut self, name: &Name, keys: &Keys<'_>) {
        Device::check_default(name, keys);
    }

    fn end(&self) -> End<'_> {
        self.device.end()
    }

    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let wanted = self.wanted(at.name.as_str());
        let (keeper, here) = (at.keeper.clone(), wanted.clone());
        let open = move || packet::open(&here, &keeper);
        let made = |found| packet::made(&wanted, at.keeper, found);
        let (sides, namespace) = open_device(self, at, self.device.netns.as_deref(), open, made)?;
        Ok(Opened { sides, link: None, namespace })
    }

    fn find(&self, at: &Finding<'_>) -> Result<(Found, Option<Namespace>), CannotOpen> {
        // The switch notes the port.
        let (wanted, left) = (self.wanted(""), at.left.clone());
        let find = move || packet::find(&wanted, &left).map_err(|why| CannotOpen { what: why.to_string(), why });
        netns::inside(self.device.netns.as_deref(), at.namespace.clone(), find)
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.device = Some(self.device.name.clone());
    }
}
