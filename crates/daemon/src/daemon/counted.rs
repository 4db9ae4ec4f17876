//! Counters and learned addresses outlive the daemon: a successor's counters go on where the last answer showed them, and it knows where frames go.
//!
//! Both are with the keeper before each answer that shows them. Counters are, too, every second; addresses every second, and more rarely the more there are.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use ringway_abi::attach::Request;
use ringway_config::Name;
use ringway_switch::{CountersReading, Mac};

use super::state::Daemon;

const COUNTERS: &str = "counters";
const ADDRESSES: &str = "addresses";
const CHANGED: &str = "changed";
/// Addresses for which another second passes before they are kept again: this many are written in a millisecond or two.
const EACH_SECOND: usize = 4096;

/// A learned address, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    vlan: u16,
    mac: Mac,
    port: Name,
    /// Seconds since it was heard.
    age: u32,
}

impl Daemon {
    /// Has the keeper hold all of this, before this process ends.
    pub fn keep_all(&mut self) {
        self.keep_counters();
        self.keep_addresses();
    }

    /// Notes that a command has changed a port of a client that no configuration has: a successor does not know how.
    pub(super) fn keep_changed(&mut self, port: (Name, Name)) {
        self.counted.changed.insert(port);
        let switches = &self.switches;
        self.counted
            .changed
            .retain(|(switch, port)| switches.get(switch).is_some_and(|live| live.ports().contains_key(port)));
        let lines: String = self.counted.changed.iter().map(|(switch, port)| format!("{switch}:{port}\n")).collect();
        if let Err(why) = self.keeper.keep_bytes(CHANGED, lines.as_bytes()) {
            ringway_runtime::warn_limited(&format!(
                "what was changed of a client's port would be lost in a crash: {why}"
            ));
        }
    }

    /// Checks that no command had changed the port of a client of a predecessor: its limits and guards would be gone.
    pub(super) fn was_not_changed(&mut self, request: &Request) -> Result<(), String> {
        let keeper = &self.keeper;
        let changed = self.counted.changed_before.get_or_insert_with(|| {
            let bytes = keeper.inherit_bytes(CHANGED).unwrap_or_default();
            String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
        });
        let label = format!("{}:{}", request.switch, request.port);
        let is_configured = self.running.config.ports.iter();
        let is_configured = is_configured
            .into_iter()
            .any(|(name, port)| name.as_str() == request.port && port.switch.as_str() == request.switch);
        if is_configured || !changed.contains(&label) {
            return Ok(());
        }
        Err(format!("a command had changed {label} for as long as the switch before lived: attach again"))
    }

    /// Has the keeper hold the counters of all ports.
    pub(super) fn keep_counters(&mut self) {
        if !self.keeper.is_kept() || self.is_taking_over {
            return;
        }
        let mut text = String::new();
        for (switch, live) in &self.switches {
            for (port, counters) in live.all_counters() {
                write_counters(&mut text, switch, port, &counters);
            }
        }
        if text != self.counted.counters {
            match self.keeper.keep_bytes(COUNTERS, text.as_bytes()) {
                Ok(()) => self.counted.counters = text,
                Err(why) => ringway_runtime::warn_limited(&format!("counters would begin anew after a crash: {why}")),
            }
        }
    }

    /// Has the keeper hold the addresses that switches have learned, if it is time. Called every second.
    pub(super) fn keep_addresses_in_time(&mut self) {
        match self.counted.pause.checked_sub(1) {
            Some(left) => self.counted.pause = left,
            None => self.keep_addresses(),
        }
    }

    /// Has the keeper hold the addresses that switches have learned.
    pub(super) fn keep_addresses(&mut self) {
        if !self.keeper.is_kept() || self.is_taking_over {
            return;
        }
        let now = ringway_runtime::seconds(Instant::now());
        let (mut bytes, mut number) = (Vec::new(), 0);
        for (name, switch) in &self.switches {
            let learned = switch.addresses().into_iter().filter_map(|address| {
                let age = now.saturating_sub(address.heard?);
                Some(Known { vlan: address.vlan, mac: address.mac, port: address.port.clone(), age })
            });
            let learned: Vec<_> = learned.collect();
            number += learned.len();
            write_addresses(&mut bytes, name, &learned);
        }
        self.counted.pause = number / EACH_SECOND;
        if let Err(why) = self.keeper.keep_bytes(ADDRESSES, &bytes) {
            ringway_runtime::warn_limited(&format!("addresses would be learned anew after a crash: {why}"));
        }
    }

    /// Gives the ports that a predecessor had its counters, and the switches its addresses.
    pub(super) fn go_on_counting(&mut self) {
        let counters = self.keeper.inherit_bytes(COUNTERS).and_then(|bytes| String::from_utf8(bytes).ok());
        for (switch, port, reading) in counters.iter().flat_map(|text| text.lines()).filter_map(read_counters) {
            let is_configured = self.running.config.ports.get(&port).is_some_and(|port| port.switch == switch);
            if let Some(live) = self.switches.get_mut(&switch) {
                live.go_on_counting(&port, &reading, is_configured);
            }
        }
        let now = ringway_runtime::seconds(Instant::now());
        let addresses = self.keeper.inherit_bytes(ADDRESSES).unwrap_or_default();
        for (switch, known) in read_addresses(&addresses) {
            if let Some(live) = self.switches.get_mut(&switch) {
                known
                    .iter()
                    .for_each(|known| live.learn(known.vlan, known.mac, &known.port, now.saturating_sub(known.age)));
            }
        }
    }
}

/// A line: switch, port, and the counters that are not zero.
fn write_counters(text: &mut String, switch: &Name, port: &Name, counters: &CountersReading) {
    let _ = write!(text, "{switch} {port}");
    for (name, count) in counters.named().filter(|(_, count)| *count > 0) {
        let _ = write!(text, " {name}={count}");
    }
    text.push('\n');
}

fn read_counters(line: &str) -> Option<(Name, Name, CountersReading)> {
    let mut words = line.split(' ');
    let (switch, port) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let counts =
        words.filter_map(|word| word.split_once('=')).filter_map(|(name, count)| Some((name, count.parse().ok()?)));
    Some((switch, port, CountersReading::of_named(counts)))
}

/// The switch's name, the names of its ports, and 14 bytes for each address. A name has its length before it, and so has each list.
fn write_addresses(bytes: &mut Vec<u8>, switch: &Name, learned: &[Known]) {
    let named = |bytes: &mut Vec<u8>, name: &Name| {
        bytes.push(u8::try_from(name.as_str().len()).unwrap_or(0));
        bytes.extend(name.as_str().bytes());
    };
    named(bytes, switch);
    let mut ports: BTreeMap<&Name, u16> = learned.iter().map(|known| (&known.port, 0)).collect();
    bytes.extend((ports.len() as u32).to_le_bytes());
    for (number, (port, at)) in (0..).zip(&mut ports) {
        *at = number;
        named(bytes, port);
    }
    bytes.extend((learned.len() as u32).to_le_bytes());
    bytes.reserve(14 * learned.len());
    for known in learned {
        bytes.extend_from_slice(&known.vlan.to_le_bytes());
        bytes.extend_from_slice(&known.mac.octets());
        bytes.extend_from_slice(&ports[&known.port].to_le_bytes());
        bytes.extend_from_slice(&known.age.to_le_bytes());
    }
}

/// Reads as far as it can be understood.
fn read_addresses(mut bytes: &[u8]) -> Vec<(Name, Vec<Known>)> {
    let mut switches = Vec::new();
    while let Some(switch) = read_switch(&mut bytes) {
        switches.push(switch);
    }
    switches
}

fn read_switch(bytes: &mut &[u8]) -> Option<(Name, Vec<Known>)> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, rest) = bytes.split_first_chunk::<N>()?;
        *bytes = rest;
        Some(*taken)
    }
    let name = |bytes: &mut &[u8]| {
        let [length] = take(bytes)?;
        let (name, rest) = bytes.split_at_checked(length.into())?;
        *bytes = rest;
        std::str::from_utf8(name).ok()?.parse::<Name>().ok()
    };
    let switch = name(bytes)?;
    let number = u32::from_le_bytes(take(bytes)?);
    let ports: Vec<Name> = (0..number).map(|_| name(bytes)).collect::<Option<_>>()?;
    let number = u32::from_le_bytes(take(bytes)?);
    let known = (0..number).map(|_| {
        let (vlan, mac) = (u16::from_le_bytes(take(bytes)?), Mac::new(take(bytes)?));
        let port = ports.get(usize::from(u16::from_le_bytes(take(bytes)?)))?.clone();
        Some(Known { vlan, mac, port, age: u32::from_le_bytes(take(bytes)?) })
    });
    Some((switch, known.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn counters_are_read_as_they_were_written() {
        let all = CountersReading::default().named().map(|(name, _)| name).collect::<Vec<_>>();
        let counters = CountersReading::of_named(all.iter().zip(1..).map(|(name, count)| (*name, count)));
        assert!(counters.named().map(|(_, count)| count).eq(1..=all.len() as u64), "{counters:?}");
        let mut text = String::new();
        write_counters(&mut text, &name("lan0"), &name("vm1"), &counters);
        assert_eq!(read_counters(text.trim_end()), Some((name("lan0"), name("vm1"), counters)));
        assert_eq!(
            read_counters("lan0 vm1 nonsense=3 in_frames=x"),
            Some((name("lan0"), name("vm1"), CountersReading::default()))
        );
        assert_eq!(read_counters("lan0"), None);
    }

    #[test]
    fn addresses_are_read_as_they_were_written_and_what_is_cut_is_not() {
        let known = |last: u8, port: &str| Known {
            vlan: last.into(),
            mac: Mac::new([2, 0, 0, 0, 0, last]),
            port: name(port),
            age: 7 * u32::from(last),
        };
        let all = [
            (name("lan0"), vec![known(1, "b"), known(2, "a"), known(3, "b")]),
            (name("lan1"), Vec::new()),
            (name("lan2"), vec![known(4, "c")]),
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|(switch, known)| write_addresses(&mut bytes, switch, known));
        assert_eq!(read_addresses(&bytes), all);
        for length in 0..bytes.len() {
            let read = read_addresses(&bytes[..length]);
            assert_eq!(read, all[..read.len()], "{length} bytes");
        }
        let mut hostile = bytes.clone();
        hostile[5..9].fill(0xff);
        assert!(read_addresses(&hostile).is_empty());
    }
}
