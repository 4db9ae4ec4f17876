//! Names of switches, ports and buckets, and Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of a switch, port or bucket: 1 to 32 of `A-Z a-z 0-9 _ . -`.
///
/// A name is part of file names and of `SWITCH:PORT`, so it has neither `/` nor `:`, and is neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Longest name in bytes.
pub const NAME_MAX: usize = 32;

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if text.is_empty() || text.len() > NAME_MAX || !text.bytes().all(allowed) || text == "." || text == ".." {
            return Err(format!("{text:?} is not a name: 1 to {NAME_MAX} letters, digits, \"_\", \".\" or \"-\""));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The Ethernet address of one station, written `52:54:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(ringway_switch::Mac);

impl Mac {
    /// Returns the address as ringway-switch takes it.
    pub fn get(self) -> ringway_switch::Mac {
        self.0
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = |_| format!("{text:?} is not an Ethernet address; write it like \"52:54:00:00:00:01\"");
        let mac: ringway_switch::Mac = text.parse().map_err(malformed)?;
        if mac.is_group() {
            return Err(format!("{text} is a group address; a port's address has an even first byte"));
        }
        if !mac.is_station() {
            return Err(format!("{text} is not a station's address; write one like \"52:54:00:00:00:01\""));
        }
        Ok(Self(mac))
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_directory_or_split_a_pair_are_refused() {
        for good in ["a", "vm-1", "lan0.2", "A_b", &"x".repeat(32)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "lan0:p1", "a b", "é", "a\n", &"x".repeat(33)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_survive_the_way_there_and_back() {
        assert_eq!("52:54:00:0A:0b:01".parse::<Mac>().unwrap().to_string(), "52:54:00:0a:0b:01");
        for bad in
            ["", "52:54:00:00:00", "52:54:00:00:00:01:02", "5:54:0:0:0:1", "52-54-00-00-00-01", "+2:54:00:00:00:01"]
        {
            assert!(bad.parse::<Mac>().unwrap_err().contains("not an Ethernet address"), "{bad:?}");
        }
        assert!("01:00:5e:00:00:01".parse::<Mac>().unwrap_err().contains("group"));
        assert!("00:00:00:00:00:00".parse::<Mac>().unwrap_err().contains("not a station's address"));
    }
}
