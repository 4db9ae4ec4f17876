//! Names of ports and of ends of pipes.

use std::fmt;
use std::str::FromStr;

use crate::attach::{MessageError, NAME_BYTES, is_name, split_name};

/// `SWITCH:PORT`, or an end of a pipe of this port: `SWITCH:PORT{ID` or `SWITCH:PORT}ID`. Each part is a valid name, and all
/// together have at most 66 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortName {
    /// Name of the switch.
    pub switch: String,
    /// Name of the port.
    pub port: String,
    /// The end of a pipe, or `None` for the port itself.
    pub pipe: Option<PipeEnd>,
}

/// An end of a pipe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipeEnd {
    /// Which of the two ends.
    pub role: PipeRole,
    /// The pipe, among those of its port.
    pub id: String,
}

/// The two ends of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PipeRole {
    /// `{`.
    Master,
    /// `}`.
    Slave,
}

impl PipeRole {
    /// Returns the other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Master => Self::Slave,
            Self::Slave => Self::Master,
        }
    }

    /// Returns the character before the pipe's identifier.
    #[must_use]
    pub const fn sign(self) -> char {
        match self {
            Self::Master => '{',
            Self::Slave => '}',
        }
    }
}

impl PortName {
    /// Reads the name of a port, which is no end of a pipe.
    ///
    /// # Errors
    /// [`MessageError::Name`].
    pub fn of_port(name: &str) -> Result<Self, MessageError> {
        let (switch, port) = split_name(name)?;
        Ok(Self { switch: switch.to_owned(), port: port.to_owned(), pipe: None })
    }
}

impl FromStr for PortName {
    type Err = MessageError;

    fn from_str(name: &str) -> Result<Self, MessageError> {
        let Some((port, id)) = name.split_once(['{', '}']) else { return Self::of_port(name) };
        let role = if name.as_bytes().get(port.len()) == Some(&b'{') { PipeRole::Master } else { PipeRole::Slave };
        if !is_name(id) || name.len() > NAME_BYTES {
            return Err(MessageError::Name(name.chars().take(NAME_BYTES).collect()));
        }
        Ok(Self { pipe: Some(PipeEnd { role, id: id.to_owned() }), ..Self::of_port(port)? })
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.switch, self.port)?;
        match &self.pipe {
            Some(PipeEnd { role, id }) => write!(f, "{}{id}", role.sign()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_port_or_an_end_of_a_pipe() {
        let end = |text: &str| text.parse::<PortName>().expect("a name").pipe.map(|end| (end.role, end.id));
        assert_eq!(end("lan0:a"), None);
        assert_eq!(end("lan0:a{1"), Some((PipeRole::Master, "1".to_owned())));
        assert_eq!(end("lan0:a}in"), Some((PipeRole::Slave, "in".to_owned())));
        for text in ["lan0:a", "lan0:a{1", "lan0:a}in"] {
            assert_eq!(text.parse::<PortName>().expect("a name").to_string(), text);
        }
        let long = format!("{0}:{0}{{1", "x".repeat(32));
        for wrong in
            ["", "lan0", "lan0:", "lan0:a{", "lan0:a}", "lan0:{1", "{1", "lan0:a{1}2", "lan0:a{1{2", "lan0:a{/", &long]
        {
            assert!(wrong.parse::<PortName>().is_err(), "{wrong}");
        }
        assert!(PortName::of_port("lan0:a{1").is_err());
    }
}
