//! `kind = "packet"`: a network device that the host goes on using, by a packet socket; or a macvtap.

use std::collections::BTreeSet;

use ringway_api::types::PortStatus;
use ringway_port_device::packet;

use super::contract::{CannotOpen, End, Named, Opened, Opening, PortKind};
use super::device::Device;
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
        let wanted = packet::Settings { device: self.device.name.clone() };
        let keeper = at.keeper.clone();
        let open = move || packet::open(&wanted, &keeper).map_err(|why| CannotOpen { what: why.to_string(), why });
        let (sides, namespace) = netns::inside(self.device.netns.as_deref(), at.namespace.clone(), open)?;
        Ok(Opened { sides, link: None, namespace })
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.device = Some(self.device.name.clone());
    }
}
