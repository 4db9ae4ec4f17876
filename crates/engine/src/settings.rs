//! Settings of an engine.

use std::time::Duration;

/// What a poller does when it has no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Polls without end.
    Spin,
    /// Polls for this long after the last frame, then asks for kicks and sleeps.
    Adaptive(Duration),
    /// Asks for kicks and sleeps at once.
    Sleep,
}

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// CPUs, one poller pinned to each. Empty: one poller that runs on any CPU.
    pub cores: Vec<usize>,
    /// What a poller does when it has no work.
    pub idle: Idle,
    /// Most frames of a batch, 1 to 1024.
    pub batch: usize,
    /// True if rings are left alone for some microseconds where that lets their drivers send more.
    pub pacing: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { cores: Vec::new(), idle: Idle::Adaptive(Duration::from_micros(50)), batch: 256, pacing: true }
    }
}
