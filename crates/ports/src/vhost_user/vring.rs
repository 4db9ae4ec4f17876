//! The settings of one queue, as far as the front end has sent them.

use std::io;
use std::os::fd::OwnedFd;

use super::device::QueueSetup;
use super::message::VringAddress;

/// One queue, as the front end has described it so far. It runs when all is known; what would change it while it runs
/// stops it first.
#[derive(Debug, Default)]
pub struct Vring {
    /// Its descriptors; 0: not known yet.
    pub size: u16,
    /// Where it is.
    pub address: Option<VringAddress>,
    /// Where it begins, or was when it stopped.
    pub base: u32,
    /// The front end has started it (SET_VRING_KICK) and not stopped it (GET_VRING_BASE) since.
    pub started: bool,
    /// What the guest kicks; none: it does not, and the queue is looked at by time.
    pub kick: Option<OwnedFd>,
    /// What wakes the guest; none: it polls.
    pub call: Option<OwnedFd>,
    /// What tells the front end that the queue broke.
    pub error: Option<OwnedFd>,
    /// Whether frames flow when it runs ("Ring states").
    pub enabled: bool,
    /// The device has it.
    pub running: bool,
    /// It is to be logged and there is no log yet: a front end that starts a queue during a migration says where the
    /// log is after it has started the queue, and before it enables it.
    pub waits_for_log: bool,
}

impl Vring {
    /// All that the device needs, if all is known.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn setup(&self) -> io::Result<Option<QueueSetup>> {
        let Some(VringAddress { descriptors, available, used, .. }) = self.address else { return Ok(None) };
        if !self.started || self.size == 0 {
            return Ok(None);
        }
        let copy = |file: &Option<OwnedFd>| file.as_ref().map(OwnedFd::try_clone).transpose();
        let (kick, call) = (copy(&self.kick)?, copy(&self.call)?);
        let (size, base, enabled) = (self.size, self.base, self.enabled);
        Ok(Some(QueueSetup { size, descriptors, available, used, base, kick, call, enabled, log: None, taken: None }))
    }
}
