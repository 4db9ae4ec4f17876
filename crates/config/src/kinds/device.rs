//! The network devices of ports.

use super::contract::End;
use crate::keys::form::{Optional, Text};
use crate::keys::{Keys, Name, keys};

/// Longest name of a network device in bytes.
const NAME_MAX: usize = 15;

/// The form of `device`. An empty name stands for the default, the port's name. A path is that of a macvtap, which packet ports take.
const DEVICE: Text<String> =
    Text { word: "NAME|PATH", wanted: "a network device's name", read: name_or_path, write: Clone::clone };

/// The form of `netns`.
const NETNS: Text<String> =
    Text { word: "NAME|PATH", wanted: "a network namespace's name or path", read: namespace, write: Clone::clone };

keys! {
    /// A port's network device.
    pub struct Device {
        name as "device": String = String::new(), DEVICE, Fixed, "The network device, by default called like the port; for packet ports also the path of a macvtap, \"/dev/tapN\". A TAP device is made if it is not there.";
        netns: Option<String> = None, Optional(NETNS), Fixed, "The network namespace of the device, a name of \"ip netns\" or a path; by default Ringway's own.";
    }
}

impl Device {
    /// Returns the device on the host.
    pub fn end(&self) -> End<'_> {
        End::Device { device: &self.name, netns: self.netns.as_deref() }
    }

    /// Notes a path, for a kind that takes none, and a missing name.
    pub fn check_name(&self, port: &Name, keys: &Keys<'_>) {
        Self::check_default(port, keys);
        if self.name.starts_with('/')
            && let Err(what) = name(&self.name)
        {
            keys.wrong("device", keys.span_of_key("device"), what, "or kind = \"packet\" for a macvtap".to_owned());
        }
    }

    /// Notes that the port needs the key `device`, if it has none and no device can be called like the port.
    pub fn check_default(port: &Name, keys: &Keys<'_>) {
        if !keys.has("device")
            && let Err(what) = name(port.as_str())
        {
            keys.missing("device", format!("the port's name does not do, as {what}"));
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%');
    if text.is_empty() || text.len() > NAME_MAX || !text.bytes().all(allowed) || text == "." || text == ".." {
        let right = format!("1 to {NAME_MAX} printable characters without \"/\", \":\", \"%\" and spaces");
        return Err(format!("{text:?} is not a network device's name; write {right}"));
    }
    Ok(text.to_owned())
}

fn name_or_path(text: &str) -> Result<String, String> {
    if text.starts_with('/') && !text.contains(char::is_control) { Ok(text.to_owned()) } else { name(text) }
}

fn namespace(text: &str) -> Result<String, String> {
    let plain = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
    if (!plain && !text.starts_with('/')) || text.contains(char::is_control) {
        return Err(format!("{text:?} is not a network namespace; write a name of \"ip netns\" or an absolute path"));
    }
    Ok(text.to_owned())
}
