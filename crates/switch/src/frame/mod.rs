//! Plain values: addresses, VLAN classes, costs, drop reasons, offloads and headers of frames, and their senders.

mod accepts;
mod class;
mod cost;
mod drop_reason;
pub(crate) mod headers;
mod mac;
mod owner;
mod sum;
pub(crate) mod tunnel;

pub use accepts::Accepts;
pub(crate) use class::{Class, VLANS, is_tag};
pub(crate) use cost::Cost;
pub use cost::WaitingPlace;
pub use drop_reason::DropReason;
pub use headers::{Headers, MAX_FRAME};
pub use mac::Mac;
pub(crate) use owner::Sender;
pub use owner::{Account, MAX_PORTS, Owner};
pub use ringway_abi::offload::{BadOffload, Gso, Offload, Tunnel};
pub(crate) use sum::Sum;
