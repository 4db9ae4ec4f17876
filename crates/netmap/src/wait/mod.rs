//! Waiting for netmap descriptors, alone or among others.
//!
//! What `poll` does in netmap's kernel is done here: the rings are synchronised, and if nothing is ready the switch is asked for a call. Then
//! the thread sleeps in the kernel, where the registration's eventfd stands for the descriptor (`sleep`). Nothing is pinned and no lock is
//! held while the thread sleeps.

pub(crate) mod epoll;
mod mask;
mod poll;
mod select;
pub(crate) mod set;
mod sleep;
mod time;

pub(crate) use mask::Mask;
pub(crate) use poll::poll;
pub(crate) use select::{Sets, select};
pub(crate) use time::Limit;
