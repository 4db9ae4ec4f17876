//! Live switches and ports: the state from which the value is built that pollers use.
//!
//! - `port`: a port that is open.
//! - `switch`: a switch and its ports.
//! - `build`: from both to the immutable value that pollers use.

mod build;
mod port;
mod switch;

pub use port::{Address, LivePort, Monitored, NewPort, SuspendedPort};
pub use switch::LiveSwitch;
