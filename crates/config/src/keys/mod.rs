//! Keys of a configuration: how they are written, what their values can be, and how they are read with the exact place of each
//! mistake. From the bottom:
//!
//! - names, quantities and mistakes are those of `ringway-api`; `mac`: Ethernet addresses of ports.
//! - [`mistake`]: mistakes with their text, and what its writer may have meant.
//! - [`node`]: values and their places, from TOML, `KEY=VALUE` words and JSON.
//! - [`key`]: the description of a key.
//! - [`reader`]: [`Keys`] reads a table by key and notes every mistake.
//! - [`section`]: a table of keys, as the parser sees it.
//! - [`form`]: the forms of values, with units and bounds.
//! - [`table`]: `keys!`, the one place of a key.

pub mod form;
pub mod key;
pub mod mac;
pub mod mistake;
pub mod node;
pub mod reader;
pub mod section;
pub mod table;

pub use key::{Class, Key, Mutability, Shape};
pub use mac::Mac;
pub use mistake::Rejected;
pub use node::{Entry, Node, Value};
pub use reader::Keys;
pub use ringway_api::{Mistake, Name, PortRef, units};
pub use section::{Table, Validate, differing};
pub(crate) use table::keys;
