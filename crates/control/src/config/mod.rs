//! The configuration: what a user writes, checked and typed.
//!
//! One path for every source. TOML text, `KEY=VALUE` words and JSON bodies become a tree of [`node::Node`]s that
//! remember where they were written; [`keys::Keys`] reads a table of that tree by key and notes every
//! [`Mistake`] instead of stopping at the first; the section files (`engine`, `attach`, `switch`, `port`) say which
//! keys exist and what they may hold; [`check`] looks at what only the whole can tell. [`diff`] turns the
//! difference of two configurations into actions.

pub mod attach;
pub mod check;
pub mod diff;
pub mod e1000;
pub mod engine;
pub mod host;
pub mod identity;
pub mod keys;
pub mod limit;
pub mod load;
pub mod memory;
pub mod mistake;
pub mod name;
pub mod node;
pub mod port;
mod port_keys;
pub mod socket;
pub mod switch;
pub mod units;
pub mod vhost_user;

use std::collections::BTreeMap;

pub use attach::{Attach, Create};
pub use e1000::E1000;
pub use engine::{Engine, Idle};
pub use host::Host;
pub use identity::Identity;
pub use limit::{Bucket, Excess, Limit, Storm};
pub use load::{LoadError, load, parse};
pub use memory::{Memory, MemoryKeys};
pub use mistake::{Mistake, Rejected};
pub use name::{Mac, Name};
pub use port::{Calls, Direction, Kind, Placement, Port};
pub use port_keys::PortKeys;
pub use socket::{Role, Socket};
pub use switch::{Flood, Forwarding, Switch};
pub use vhost_user::VhostUser;

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
