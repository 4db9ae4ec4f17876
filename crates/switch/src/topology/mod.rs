//! A switch and its ports, as pollers see them: immutable values, replaced when anything changes.

mod member;
mod spread;
mod switch;

pub use member::Member;
pub use spread::{Forwarding, Spread, Spreads};
pub use switch::{Forward, Switch};
