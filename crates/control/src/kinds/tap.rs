//! `kind = "tap"`: the network stack of the host or of a namespace, by a TAP device.

use std::collections::BTreeSet;

use ringway_ports::tap;

use super::contract::{CannotOpen, End, Named, Opened, Opening, PortKind};
use super::device::Device;
use super::netns;
use crate::api::types::PortStatus;
use crate::keys::{Keys, Mac, Name, keys};

keys! {
    /// Settings of a TAP port.
    pub struct Tap {}
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

    fn open(&self, _: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let wanted = tap::Settings { device: self.device.name.clone() };
        let open = move || tap::open(&wanted).map_err(|why| CannotOpen { what: why.to_string(), why });
        netns::inside(self.device.netns.as_deref(), open).map(|sides| Opened { sides, link: None })
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.device = Some(self.device.name.clone());
    }
}
