//! The configuration: what a user writes, checked and typed.
//!
//! There is one path for every source. TOML text, `KEY=VALUE` words and JSON bodies become a tree of [`node::Node`]s that
//! remember where they were written. [`keys::Keys`] reads a table of that tree by key and notes every [`Mistake`] instead of
//! stopping at the first. [`check`] looks at what only the whole can tell. [`diff`] turns the difference of two configurations
//! into actions.
//!
//! A key stands in one line, in a table of keys ([`table`]) of its section (`engine`, `attach`, `memory`, `switch`, `limit`,
//! `identity`, `port`) or of a kind of port ([`crate::kinds`]). From that line follow the field of the settings, the parser, what
//! `port set` may change, the difference of two ports, the help of commands, `/openapi.json`, the manual page ([`manual`]) and
//! shell completion.

pub mod attach;
pub mod check;
pub mod diff;
pub mod engine;
pub mod form;
pub mod host;
pub mod identity;
pub mod keys;
pub mod limit;
pub mod load;
pub mod manual;
pub mod memory;
pub mod mistake;
pub mod name;
pub mod node;
pub mod port;
pub mod socket;
pub mod subject;
pub mod switch;
pub mod table;
pub mod units;

use std::collections::BTreeMap;

pub use attach::{Attach, Create};
pub use engine::{Engine, Idle};
pub use host::Host;
pub use identity::Identity;
pub use limit::{Bucket, Excess, Limit, Storm};
pub use load::{LoadError, load, parse};
pub use memory::Memory;
pub use mistake::{Mistake, Rejected};
pub use name::{Mac, Name};
pub use port::{Calls, Direction, Placement, Port};
pub use socket::{Role, Socket};
pub use subject::Subject;
pub use switch::{Flood, Forwarding, Switch};

pub use crate::kinds::e1000::{self, E1000};
pub use crate::kinds::vhost_user::VhostUser;
pub use crate::kinds::{Kind, Settings};

/// Everything a configuration file can say. Each part is valid and the parts agree (see [`check`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[engine]`.
    pub engine: Engine,
    /// `[attach]`.
    pub attach: Attach,
    /// `[memory]`.
    pub memory: Memory,
    /// `[bucket.NAME]`.
    pub buckets: BTreeMap<Name, Bucket>,
    /// `[switch.NAME]`.
    pub switches: BTreeMap<Name, Switch>,
    /// `[port.NAME]`. Names are unique over all switches here; ports that clients make by attaching need only be
    /// unique on their switch.
    pub ports: BTreeMap<Name, Port>,
}
