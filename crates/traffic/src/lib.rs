//! Traffic: frames made, sent, received and checked.

mod endpoint;
pub use endpoint::Endpoint;
