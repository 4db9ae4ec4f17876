//! What commands changed: the difference of the running configuration from the file, section by section.
//!
//! [`section`] writes a switch, bucket or port as its keys, and reads it back; [`change`] is the difference, with each section as
//! the file had it when it was changed; [`merge`](mod@merge) brings the difference onto the file as it is now; [`text`] is the state
//! file, and [`toml`] what users read. Nothing here touches the system.
//!
//! ```text
//! file as it was --+
//!                  +--> Changes::between --> state file --> merge --> running configuration
//! running ---------+                                          ^
//!                                            file as it is ---+
//! ```

pub mod change;
pub mod merge;
pub mod section;
pub mod text;
pub mod toml;

pub use change::{Change, Changes};
pub use merge::{Contradiction, Merged, SetAside, merge};
pub use section::{Id, Part, Section};
pub use text::StateError;
