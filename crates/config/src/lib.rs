//! The configuration: what a user writes, checked and typed.
//!
//! There is one path for every source. TOML text, `KEY=VALUE` words and JSON bodies become a tree of [`crate::keys::Node`]s that
//! remember where they were written. [`crate::keys::Keys`] reads a table of that tree by key and notes every mistake instead of
//! stopping at the first. From the bottom:
//!
//! - [`keys`]: how keys and values are written and read. [`kinds`]: kinds of ports, a file each.
//! - `engine`, `attach`, `state`, `privileged`, `switch`, `limit`, `identity`: a section or a table of keys each. The keys of one kind of port, and those
//!   that several kinds share, are in [`crate::kinds`].
//! - [`port`]: the keys of every port, together with those of its kind.
//! - [`model`]: [`Config`], the whole.
//! - [`check`]: what only the whole can tell.
//! - [`absent`](mod@absent): what is not there on this machine, and can come.
//! - [`doubts`](mod@doubts): what looks like a mistake and can turn out to be right.
//! - [`load`](mod@load), [`diff`]: from a file to a [`Config`], and the actions that turn one into another.
//! - [`changes`]: what commands changed of the file, and the file as it is now with these changes.
//! - [`scope`], [`manual`]: what commands, `/openapi.json` and ringway.toml(5) say of the keys.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod absent;
pub mod attach;
pub mod changes;
pub mod check;
pub mod diff;
pub mod doubts;
pub mod engine;
pub mod host;
pub mod identity;
pub mod keys;
pub mod kinds;
pub mod limit;
pub mod load;
pub mod manual;
pub mod model;
pub mod port;
pub mod privileged;
pub mod scope;
pub mod state;
pub mod switch;

pub use attach::{Attach, Create};
pub use engine::{Engine, Idle};
pub use host::Host;
pub use identity::Identity;
pub use limit::{Bucket, Excess, Limit, Storm};
pub use load::{LoadError, Loaded, Places, load, load_text, load_with_doubts, parse};
pub use model::Config;
pub use port::{CallInterval, Calls, Coalesce, Direction, Placement, Port};
pub use privileged::{Privileged, Requests};
pub use scope::KeyScope;
pub use state::{Conflict, State};
pub use switch::{Flood, Forwarding, ProgramKeys, Switch};

pub use crate::keys::{Mac, Mistake, Name, Rejected};
pub use crate::kinds::access::{Access, Sockets};
pub use crate::kinds::e1000::{self, E1000};
pub use crate::kinds::memory::Memory;
pub use crate::kinds::socket::{Role, Socket};
pub use crate::kinds::vhost_user::VhostUser;
pub use crate::kinds::{Kind, Settings};
