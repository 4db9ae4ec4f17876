//! What a configuration names on this machine and what is not there now: a network namespace, a device, a folder of a socket, a file of a
//! program. Nothing is refused for it: the port or switch has failed until it is there. It is looked for by name alone, and nothing is opened.

use std::path::Path;

use super::check::Finding;
use super::model::Config;
use super::port::Port;
use crate::keys::Name;
use crate::kinds::Kind;
use crate::kinds::contract::End;
use crate::kinds::netns;

/// Returns what is absent, in the order of names. `runtime_dir`: the directory of the daemon's sockets, which the daemon makes.
pub fn absent(config: &Config, runtime_dir: &Path) -> Vec<Finding> {
    let ports = config.ports.iter().filter_map(|(name, port)| of_port(name, port, runtime_dir));
    let files = config.switches.iter().flat_map(|(name, switch)| {
        let keys = switch.forwarding.program().cloned();
        let mut keys = keys.into_iter().collect::<Vec<_>>();
        let paths = keys.iter_mut().flat_map(|keys| keys.paths().map(|(key, path)| (key, path.clone())));
        let absent = paths.filter(|(_, path)| !path.as_os_str().is_empty() && !path.exists());
        let finding = |(key, path): (&str, std::path::PathBuf)| {
            let keys = ["switch", name.as_str(), "forwarding", key].map(str::to_owned).to_vec();
            Finding::new(keys, format!("there is no file {}", path.display()), UNTIL_THEN_SWITCH.to_owned())
        };
        absent.map(finding).collect::<Vec<_>>()
    });
    ports.chain(files).collect()
}

const UNTIL_THEN: &str = "until it is there, the port has failed, and is tried again every second";
const UNTIL_THEN_SWITCH: &str = "until it is there, the switch drops all frames";

fn of_port(name: &Name, port: &Port, runtime_dir: &Path) -> Option<Finding> {
    let finding = |key: &str, what| {
        let keys = ["port", name.as_str(), key].map(str::to_owned).to_vec();
        Some(Finding::new(keys, what, UNTIL_THEN.to_owned()))
    };
    match port.settings.own().end() {
        End::Device { netns: Some(space), .. } if netns::now(space).is_ok_and(|now| now.is_none()) => {
            finding("netns", format!("there is no network namespace \"{space}\""))
        }
        End::Device { device, .. } if device.starts_with('/') => {
            (!Path::new(device).exists()).then(|| finding("device", format!("there is no device {device}")))?
        }
        // Ringway makes TAP devices. Devices of other namespaces cannot be seen from here.
        End::Device { device, netns: None } if port.kind() != Kind::Tap => {
            let is_there = Path::new("/sys/class/net").join(device).exists();
            (!is_there).then(|| finding("device", format!("there is no network device \"{device}\"")))?
        }
        End::Socket { path, listens: true } => {
            let path = runtime_dir.join(path);
            let folder = path.parent().filter(|folder| *folder != runtime_dir && !folder.is_dir())?;
            finding("socket", format!("there is no folder {}", folder.display()))
        }
        _ => None,
    }
}
