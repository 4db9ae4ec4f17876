//! `kind = "tap"`: the network stack of the host or of a namespace, by a TAP device.

use std::collections::BTreeSet;

use ringway_ports::tap;

use super::contract::{CannotOpen, End, Named, Opened, Opening, PortKind};
use super::netns;
use crate::api::types::PortStatus;
use crate::keys::form::{Optional, Text};
use crate::keys::{Keys, Mac, Name, keys};

/// Longest name of a network device in bytes.
const DEVICE_MAX: usize = 15;

/// The form of `device`. An empty name stands for the default, the port's name.
const DEVICE: Text<String> =
    Text { word: "NAME", wanted: "a network device's name", read: device_name, write: Clone::clone };

/// The form of `netns`.
const NETNS: Text<String> =
    Text { word: "NAME|PATH", wanted: "a network namespace's name or path", read: netns_name, write: Clone::clone };

keys! {
    /// Settings of a TAP port.
    pub struct Tap {
        device: String = String::new(), DEVICE, Fixed, "The network device, which is made if it is not there; by default called like the port.";
        netns: Option<String> = None, Optional(NETNS), Fixed, "The network namespace of the device, a name of \"ip netns\" or a path; by default Ringway's own.";
    }
}

impl Named for Tap {
    const NAME: &'static str = "tap";
    const ABOUT: &'static str = "The network stack of the host or of a network namespace, by a TAP device.";
}

impl PortKind for Tap {
    fn named(&mut self, name: &Name) {
        self.device = name.to_string();
    }

    fn validate(&mut self, name: &Name, keys: &Keys<'_>) {
        if !keys.has("device")
            && let Err(what) = device_name(name.as_str())
        {
            keys.missing("device", format!("the port's name does not do, as {what}"));
        }
    }

    fn end(&self) -> End<'_> {
        End::Device { device: &self.device, netns: self.netns.as_deref() }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let wanted = tap::Settings { device: self.device.clone() };
        let open = move || tap::open(&wanted).map_err(|why| CannotOpen { what: why.to_string(), why });
        netns::inside(self.netns.as_deref(), open).map(|sides| Opened { sides, link: None })
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.device = Some(self.device.clone());
    }
}

fn device_name(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%');
    if text.is_empty() || text.len() > DEVICE_MAX || !text.bytes().all(allowed) || text == "." || text == ".." {
        let right = format!("1 to {DEVICE_MAX} printable characters without \"/\", \":\", \"%\" and spaces");
        return Err(format!("{text:?} is not a network device's name; write {right}"));
    }
    Ok(text.to_owned())
}

fn netns_name(text: &str) -> Result<String, String> {
    let plain = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
    if (!plain && !text.starts_with('/')) || text.contains(char::is_control) {
        return Err(format!("{text:?} is not a network namespace; write a name of \"ip netns\" or an absolute path"));
    }
    Ok(text.to_owned())
}
