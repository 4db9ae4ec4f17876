//! Ethernet addresses of ports.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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
