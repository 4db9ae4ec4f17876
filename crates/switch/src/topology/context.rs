//! What every stage of a pass is given.

use super::member::Member;
use super::switch::Switch;
use crate::time::Time;

/// The source of a batch, the switch that the batch crosses, and the one clock reading of the pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'p> {
    pub(crate) from: &'p Member,
    pub(crate) switch: &'p Switch,
    pub(crate) now: &'p Time,
}
