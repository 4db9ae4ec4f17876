//! The name by which users refer to a port.

use std::fmt;
use std::str::FromStr;

use super::name::Name;

/// `NAME`, or `SWITCH:NAME` where several switches have a port of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRef {
    /// The switch, when given.
    pub switch: Option<Name>,
    /// The port.
    pub name: Name,
}

impl FromStr for PortRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None => Ok(Self { switch: None, name: text.parse()? }),
            Some((switch, name)) => Ok(Self { switch: Some(switch.parse()?), name: name.parse()? }),
        }
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(switch) = &self.switch {
            write!(f, "{switch}:")?;
        }
        self.name.fmt(f)
    }
}

impl PortRef {
    /// Returns true if this names the port `name` of `switch`.
    pub fn matches(&self, switch: &Name, name: &Name) -> bool {
        self.name == *name && self.switch.as_ref().is_none_or(|s| s == switch)
    }
}
