//! What the switch may have: on its own only what its configuration file names. A command of an administrator lets it have more.

use std::time::Duration;

use ringway_api::paths::KEEPER_SOCKET;
use ringway_commands::context::Context;
use serde_json::{Map, Value as Json, json};

/// Keys by which a port is known, and what it may need of the machine.
const NAMING: [&str; 6] = ["switch", "kind", "device", "netns", "socket", "role"];
/// Keys that say what a port gets of its device.
const OF_DEVICES: [&str; 4] = ["host", "queues", "mode", "mtu"];
/// Longest wait for the keeper.
const GRANTED_WITHIN: Duration = Duration::from_secs(2);

/// Lets the switch have the device, socket or file in these keys of a `port` or `switch`. Where this fails, the switch says what it may not have.
pub fn grant(context: &Context, part: &str, name: &str, keys: &Json) {
    // The others name nothing, and there is not room for every port that is ever made.
    let Json::Object(all) = keys else { return };
    let kind = all.get("kind").and_then(Json::as_str).unwrap_or_default();
    let is_device = matches!(kind, "tap" | "xdp" | "packet");
    let named =
        |key: &str| NAMING.contains(&key) || key.starts_with("forwarding") || (is_device && OF_DEVICES.contains(&key));
    let keys: Map<_, _> =
        all.iter().filter(|(key, _)| named(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    if !is_device && !keys.keys().any(|key| key == "socket" || key.starts_with("forwarding")) {
        return;
    }
    let line = json!({ part: name, "keys": keys }).to_string();
    let _ = ringway_keeper::grant(&context.runtime_dir.join(KEEPER_SOCKET), &line, GRANTED_WITHIN);
}
