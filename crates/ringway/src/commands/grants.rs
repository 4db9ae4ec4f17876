//! What the switch may have: on its own only what its configuration file names. A command of an administrator lets it have more.

use std::time::Duration;

use ringway_api::paths::KEEPER_SOCKET;
use ringway_commands::context::Context;
use serde_json::{Value as Json, json};

/// Longest wait for the keeper.
const GRANTED_WITHIN: Duration = Duration::from_secs(2);

/// Lets the switch have the device, socket or file in these keys of a `port` or `switch`. Where this fails, the switch says what it may not have.
pub fn grant(context: &Context, part: &str, name: &str, keys: &Json) {
    let line = json!({ part: name, "keys": keys }).to_string();
    let _ = ringway_keeper::grant(&context.runtime_dir.join(KEEPER_SOCKET), &line, GRANTED_WITHIN);
}
