//! Opens the devices of configured ports.

use ringway_ports::Sides;

use super::netns;
use crate::config::Port;

/// Opens the device of a port that has one. The error is for users.
pub fn device(settings: &Port) -> Result<Sides, String> {
    let device = settings.device.clone().unwrap_or_default();
    let netns = settings.netns.clone();
    netns::inside(netns.as_deref(), move || Err(format!("cannot open TAP device \"{device}\"")))
}
