//! The settings of one queue, as far as the front end has sent them.

use std::io;
use std::sync::Arc;

use ringway_port::front_end::ClientFd;

use super::device::QueueSetup;
use super::message::VringAddress;

/// One queue, as far as the front end has described it. It runs when everything is known. A change to a running queue
/// stops it first.
#[derive(Debug, Default)]
pub struct Vring {
    /// Number of descriptors; 0 if not known yet.
    pub size: u16,
    /// The addresses of its parts.
    pub address: Option<VringAddress>,
    /// The position at which it starts, or at which it stopped.
    pub base: u32,
    /// True after the front end has started it (SET_VRING_KICK), until it is stopped (GET_VRING_BASE).
    pub started: bool,
    /// The kick eventfd. Without one the guest sends no kicks, and the queue is polled.
    pub kick: Option<Arc<ClientFd>>,
    /// The call eventfd. Without one the guest polls.
    pub call: Option<Arc<ClientFd>>,
    /// The eventfd that reports an error of the queue to the front end.
    pub error: Option<ClientFd>,
    /// True if frames flow while it runs (vhost-user, "Ring states").
    pub enabled: bool,
    /// True while the device runs it.
    pub running: bool,
    /// True if its writes have to be logged and there is no log yet. A front end that starts a queue during a migration
    /// sends the log after it has started the queue and before it enables it.
    pub waits_for_log: bool,
}

impl Vring {
    /// Returns all that the device needs to start the queue, or `None` if something is not known yet.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn setup(&self) -> io::Result<Option<QueueSetup>> {
        let Some(VringAddress { descriptors, available, used, .. }) = self.address else { return Ok(None) };
        if !self.started || self.size == 0 {
            return Ok(None);
        }
        let (kick, call) = (self.kick.clone(), self.call.clone());
        let (size, base, enabled) = (self.size, self.base, self.enabled);
        Ok(Some(QueueSetup { size, descriptors, available, used, base, kick, call, enabled, log: None, taken: None }))
    }
}
