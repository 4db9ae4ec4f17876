//! A mistake in a configuration or a request: what is wrong, where, and what would be right.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A part of a configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Mistake {
    /// The key, from the root of what was read: `port.vm1.weight` in a file, `weight` in `port add`. Empty for text that
    /// is not TOML.
    pub key: String,
    /// The bytes of the text that it concerns, if there is a text.
    #[serde(skip)]
    pub span: Option<Range<usize>>,
    /// What was wrong.
    pub what: String,
    /// What would be right; empty when `what` says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub right: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            // The key can have any characters, for example control characters.
            write!(f, "key \"{}\": ", self.key.escape_debug())?;
        }
        f.write_str(&self.what)?;
        if !self.right.is_empty() {
            write!(f, "; {}", self.right)?;
        }
        Ok(())
    }
}
