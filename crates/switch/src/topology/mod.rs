//! A switch and its ports, as pollers see them: immutable values, replaced on each change.

mod context;
mod flood_policy;
mod member;
mod switch;

pub(crate) use context::Context;
pub use flood_policy::{FloodAction, FloodPolicy, Forwarding, ReservedGroups};
pub use member::Member;
pub(crate) use switch::{Entered, FEW};
pub use switch::{Forward, Switch};
