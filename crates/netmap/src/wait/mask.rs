//! The signal mask that a wait sets.

use libc::sigset_t;

/// The signal mask of a wait, or null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask(pub(crate) *const sigset_t);
