//! The one time limit of waits.

use std::time::Duration;

/// Longest wait for a step of the demo. It is no measure of the step: only a step that hangs takes longer, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);
