//! Keys of a configuration: how they are written, what their values can be, and how they are read with the exact place of each
//! mistake. From the bottom:
//!
//! - `name`, `port_ref`, `units`: names, Ethernet addresses, and quantities as users write them.
//! - [`mistake`]: what is wrong, where, and what would be right.
//! - [`node`]: values and their places, from TOML, `KEY=VALUE` words and JSON.
//! - [`key`]: the description of a key.
//! - [`reader`]: [`Keys`] reads a table by key and notes every mistake.
//! - [`section`]: a table of keys, as the parser sees it.
//! - [`form`]: the forms of values, with units and bounds.
//! - [`table`]: `keys!`, the one place of a key.

pub mod form;
pub mod key;
pub mod mistake;
pub mod name;
pub mod node;
pub mod port_ref;
pub mod reader;
pub mod section;
pub mod table;
pub mod units;

pub use key::{Class, Key, Mutability, Shape};
pub use mistake::{Mistake, Rejected};
pub use name::{Mac, Name};
pub use node::{Entry, Node, Value};
pub use port_ref::PortRef;
pub use reader::Keys;
pub use section::{Table, Validate};
pub(crate) use table::keys;
