//! Opens the devices of configured ports.

use ringway_ports::Sides;
use ringway_ports::tap;

use super::netns;
use crate::config::Port;

/// Opens the device of a port that has one. The error is for users.
pub fn device(settings: &Port) -> Result<Sides, String> {
    let Some(device) = settings.device.clone() else { return Err("the port has no device".to_owned()) };
    let wanted = tap::Settings { device };
    netns::inside(settings.netns.as_deref(), move || tap::open(&wanted).map_err(|e| e.to_string()))
}
