//! The one time limit of waits.

use std::time::Duration;

/// Longest wait for a program, a switch, a guest, a frame or an answer. Only what hangs or is broken is ended by it, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
