//! QEMU's machine protocol: a JSON object a line (QEMU, docs/interop/qmp-spec.rst).

use std::io::{self, ErrorKind};
use std::time::Instant;

use serde_json::{Value, json};

use crate::console::Channel;

/// A connection to QEMU's machine protocol (QMP).
#[derive(Debug)]
pub struct Qmp {
    channel: Channel,
}

impl Qmp {
    /// Reads the greeting and enters command mode.
    pub fn new(mut channel: Channel, deadline: Instant) -> io::Result<Qmp> {
        read(&mut channel, deadline)?;
        let mut qmp = Qmp { channel };
        qmp.execute("qmp_capabilities", json!({}), deadline)?;
        Ok(qmp)
    }

    /// Executes a command. Returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value, deadline: Instant) -> io::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.channel.write(format!("{request}\n").as_bytes(), deadline)?;
        loop {
            let mut answer = read(&mut self.channel, deadline)?;
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("{command}: {}", error["desc"])));
            }
            // All other messages are events.
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
        }
    }

    /// Waits for an event for which `wanted`, called with its name and data, returns a value. Returns that value.
    pub fn event<T>(&mut self, deadline: Instant, wanted: impl Fn(&str, &Value) -> Option<T>) -> io::Result<T> {
        loop {
            let event = read(&mut self.channel, deadline)?;
            if let Some(found) = event["event"].as_str().and_then(|name| wanted(name, &event["data"])) {
                return Ok(found);
            }
        }
    }
}

fn read(channel: &mut Channel, deadline: Instant) -> io::Result<Value> {
    let line = channel.line(deadline)?;
    serde_json::from_str(&line).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}
