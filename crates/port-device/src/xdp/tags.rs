//! VLAN tags of received frames. A device that takes tags out of frames tells them beside the frame, where an XDP socket does not see
//! them: so it has to leave them in. Where no successor follows a process that is killed, nobody undoes this: `ethtool -K DEVICE rxvlan on
//! rx-vlan-stag-hw-parse on` does.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringway_netdevice::requests::{name_of, set_features, tag_removal};

/// The device leaves tags in frames while this exists.
pub(super) struct Tags {
    /// For requests in the device's namespace.
    requests: OwnedFd,
    /// The device's number: another device may get its name.
    device: u32,
    /// The features that were on before, and that take tags out.
    before: u128,
}

impl Tags {
    /// # Errors
    /// The device goes on taking tags out.
    pub(super) fn keep(device: u32, requests: OwnedFd) -> io::Result<Tags> {
        let name = &*name_of(device, requests.as_fd())?;
        let before = tag_removal(name, requests.as_fd())?;
        let tags = Tags { requests, device, before };
        if before != 0 {
            set_features(name, tags.requests.as_fd(), before, false)?;
            are_kept(tag_removal(name, tags.requests.as_fd())?)?;
        }
        Ok(tags)
    }

    /// What a predecessor has done to the device.
    pub(super) fn left(device: u32, requests: OwnedFd, before: u128) -> Tags {
        Tags { requests, device, before }
    }

    /// The features that are on again afterwards.
    pub(super) fn before(&self) -> u128 {
        self.before
    }
}

/// Refuses a device that has features on that take tags out.
fn are_kept(left: u128) -> io::Result<()> {
    if left == 0 {
        return Ok(());
    }
    Err(io::Error::other(
        "it takes VLAN tags out of received frames (ethtool -k: rx-vlan-offload or rx-vlan-stag-hw-parse), and does not let that be \
         switched off, so that frames of a VLAN would come without their tag: use kind=packet for this device",
    ))
}

impl Drop for Tags {
    fn drop(&mut self) {
        // Fails if the device is gone.
        if self.before != 0
            && let Ok(name) = name_of(self.device, self.requests.as_fd())
        {
            let _ = set_features(&name, self.requests.as_fd(), self.before, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_goes_on_taking_tags_out_is_refused_with_what_to_do() {
        assert!(are_kept(0).is_ok());
        let error = are_kept(1 << 40).expect_err("a feature is on").to_string();
        assert!(error.contains("rx-vlan-offload") && error.contains("use kind=packet"), "{error}");
    }
}
