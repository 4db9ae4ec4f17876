//! What a change needs before it is made: an open network device ([`devices`](super::devices) opens it).

use std::path::PathBuf;
use std::sync::Arc;

use ringway_config::kinds::contract::Namespace;
use ringway_config::{Access, Name, Port};
use ringway_keeper::Link;

use super::events::Events;

/// A port whose device has to be opened.
#[derive(Debug)]
pub struct WantedDevice {
    pub(super) name: Name,
    pub(super) settings: Port,
    pub(super) runtime_dir: PathBuf,
    pub(super) access: Access,
    /// The network namespace that it has to be in.
    pub(super) namespace: Option<Namespace>,
    pub(super) events: Arc<Events>,
    pub(super) keeper: Link,
}
