//! `kind = "tap"`: the network stack of the host or of a namespace, by a TAP device.

use std::collections::BTreeSet;

use ringway_api::types::PortStatus;
use ringway_port_device::tap;

use super::contract::{CannotOpen, End, MTU, Named, Opened, Opening, PortKind};
use super::device::Device;
use super::netns;
use crate::keys::form::{Integer, Optional};
use crate::keys::{Keys, Mac, Name, keys};

keys! {
    /// Settings of a TAP port.
    pub struct Tap {
        mtu: Option<u16> = None, Optional(Integer(MTU)), Fixed, "The MTU that the guest is told, and longer frames are dropped; of a TAP device: that it gets; by default the guest's or the device's own.";
    }
    groups {
        /// The device.
        device: Device,
    }
}

impl Named for Tap {
    const NAME: &'static str = "tap";
    const ABOUT: &'static str = "The network stack of the host or of a network namespace, by a TAP device.";
}

impl PortKind for Tap {
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
        // One of several addresses would be chosen by chance.
        let address = if at.macs.len() == 1 { at.macs.first() } else { None };
        let address = address.map(|mac| mac.get().octets());
        let wanted = tap::Settings { device: self.device.name.clone(), address, mtu: self.mtu };
        let keeper = at.keeper.clone();
        let open = move || tap::open(&wanted, &keeper).map_err(|why| CannotOpen { what: why.to_string(), why });
        let (sides, namespace) = netns::inside(self.device.netns.as_deref(), at.namespace.clone(), open)?;
        Ok(Opened { sides, link: None, namespace })
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.device = Some(self.device.name.clone());
    }
}
