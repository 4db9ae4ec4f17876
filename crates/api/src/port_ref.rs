//! The name by which users refer to a port.

use std::fmt;
use std::str::FromStr;

use ringway_abi::netmap::{PipeEnd, PipeRole};

use crate::name::Name;

/// `NAME`, or `SWITCH:NAME` where several switches have a port of that name. `NAME{ID` and `NAME}ID` are the ends of a pipe of the netmap API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRef {
    /// The switch, when given.
    pub switch: Option<Name>,
    /// The port.
    pub name: Name,
    /// The end of a pipe of this port, or `None` for the port itself.
    pub pipe: Option<PipeEnd>,
}

impl FromStr for PortRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (switch, name) = match text.split_once(':') {
            None => (None, text),
            Some((switch, name)) => (Some(switch.parse()?), name),
        };
        let Some(sign) = name.find(['{', '}']) else { return Ok(Self { switch, name: name.parse()?, pipe: None }) };
        let role = if name[sign..].starts_with(PipeRole::Master.sign()) { PipeRole::Master } else { PipeRole::Slave };
        let id: Name = name[sign + 1..].parse()?;
        Ok(Self { switch, name: name[..sign].parse()?, pipe: Some(PipeEnd { role, id: id.into() }) })
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(switch) = &self.switch {
            write!(f, "{switch}:")?;
        }
        self.name.fmt(f)?;
        match &self.pipe {
            Some(PipeEnd { role, id }) => write!(f, "{}{id}", role.sign()),
            None => Ok(()),
        }
    }
}

impl PortRef {
    /// Returns true if this names the port `name` of `switch`, or an end of one of its pipes.
    pub fn matches(&self, switch: &Name, name: &Name) -> bool {
        self.name == *name && self.switch.as_ref().is_none_or(|s| s == switch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_port_or_an_end_of_a_pipe_with_or_without_its_switch() {
        let end = |text: &str| text.parse::<PortRef>().expect("a name").pipe.map(|end| (end.role, end.id));
        assert_eq!(end("a"), None);
        assert_eq!(end("lan0:a{1"), Some((PipeRole::Master, "1".to_owned())));
        assert_eq!(end("a}in"), Some((PipeRole::Slave, "in".to_owned())));
        for text in ["a", "lan0:a", "lan0:a{1", "a}in"] {
            assert_eq!(text.parse::<PortRef>().expect("a name").to_string(), text);
        }
        for wrong in ["", "lan0:", "a{", "{1", "a{1}2", "lan0:a{/", "lan0{1:a"] {
            assert!(wrong.parse::<PortRef>().is_err(), "{wrong}");
        }
    }
}
