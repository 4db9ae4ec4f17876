//! VLAN tags of received frames. A device that takes tags out of frames tells them beside the frame, where an XDP socket does not see
//! them: so it has to leave them in. A process that is killed cannot undo this: `ethtool -K DEVICE rxvlan on` does.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::netdevice::{set_tag_removal, socket};

/// The device leaves tags in frames while this exists.
pub(super) struct Tags {
    /// For requests in the device's namespace.
    requests: OwnedFd,
    name: String,
    /// The device took tags out before.
    before: bool,
}

impl Tags {
    /// A device that cannot change this keeps what it does.
    pub(super) fn keep(name: &str) -> io::Result<Tags> {
        let requests = socket()?;
        let before = set_tag_removal(name, requests.as_fd(), false).unwrap_or(false);
        Ok(Tags { requests, name: name.to_owned(), before })
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        if self.before {
            // Fails if the device is gone.
            let _ = set_tag_removal(&self.name, self.requests.as_fd(), true);
        }
    }
}
