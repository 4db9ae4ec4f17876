//! Names of switches, ports and buckets.

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
}
