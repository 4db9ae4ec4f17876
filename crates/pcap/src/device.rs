//! Names of devices: `SWITCH:PORT` and `mirror:[SWITCH:]PORT` are ours, all others are libpcap's.

use ringway_abi::attach::split_name;

/// A device of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A process port, `SWITCH:PORT`.
    Port(String),
    /// A tap on a port, `PORT` or `SWITCH:PORT`.
    Mirror(String),
}

/// What names of libpcap's own devices begin with, before a colon.
const LIBPCAPS: [&str; 8] = ["nflog", "nfqueue", "bluetooth", "dpdk", "netmap", "rpcap", "rpcaps", "snf"];

impl Device {
    /// Returns the device of this name, or `None` if it is libpcap's.
    pub fn parse(name: &str) -> Option<Device> {
        let (first, rest) = name.split_once(':')?;
        if first == "mirror" {
            // A port's name alone is checked as the port of some switch.
            let is_name = split_name(rest).is_ok() || split_name(&format!("x:{rest}")).is_ok();
            return is_name.then(|| Device::Mirror(rest.to_owned()));
        }
        if LIBPCAPS.contains(&first) {
            return None;
        }
        split_name(name).is_ok().then(|| Device::Port(name.to_owned()))
    }

    /// Returns the name that a program opens.
    pub fn name(&self) -> String {
        match self {
            Device::Port(name) => name.clone(),
            Device::Mirror(name) => format!("mirror:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_switch_are_ours_and_others_are_libpcaps() {
        assert_eq!(Device::parse("lan0:a"), Some(Device::Port("lan0:a".into())));
        assert_eq!(Device::parse("vale0:1"), Some(Device::Port("vale0:1".into())));
        assert_eq!(Device::parse("mirror:vm1"), Some(Device::Mirror("vm1".into())));
        assert_eq!(Device::parse("mirror:lan0:vm1"), Some(Device::Mirror("lan0:vm1".into())));
        for name in ["lan0:a", "mirror:vm1", "mirror:lan0:vm1"] {
            assert_eq!(Device::parse(name).unwrap().name(), name);
        }
        let long = format!("lan0:{}", "a".repeat(1000));
        for name in [
            "eth0",
            "any",
            "",
            ":",
            "a:",
            ":a",
            "nflog:5",
            "a:b:c",
            "mirror:",
            "mirror:a:b:c",
            "lan0:a/b",
            "lan0:\n",
            &long,
        ] {
            assert_eq!(Device::parse(name), None, "{name:?}");
        }
    }
}
