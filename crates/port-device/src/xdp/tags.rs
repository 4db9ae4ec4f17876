//! VLAN tags of received frames. A device that takes tags out of frames tells them beside the frame, where an XDP socket does not see
//! them: so it has to leave them in. Where no successor follows a process that is killed, nobody undoes this: `ethtool -K DEVICE rxvlan on
//! rx-vlan-stag-hw-parse on` does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringway_keeper::opener::{Answered, Ask, Refusal, Said, of_process};
use ringway_netdevice::requests::{name_of, set_features, tag_features, tag_removal};
use rustix::net::sockopt;

/// Longest wait for the opener, which waits for the kernel's lock of network devices.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

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

    /// Leaves the device as it is: another process has it.
    pub(super) fn let_go(&mut self) {
        self.before = 0;
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
        if self.before == 0 {
            return;
        }
        let ask = Ask::Tags { device: self.device, features: self.before };
        if of_process().ask_done(&ask, &[self.requests.as_fd()], ANSWERED_WITHIN).is_none() {
            restore(self.device, self.requests.as_fd(), self.before);
        }
    }
}

/// Does what the switch asks the opener about tags: has a device take them out again.
///
/// # Errors
/// The question is about something else.
pub fn answer_about_tags(ask: &Ask, requests: Option<OwnedFd>) -> Answered {
    match (ask, requests) {
        // What a device file makes of the requests, it says itself.
        (&Ask::Tags { device, features }, Some(requests)) if sockopt::socket_domain(&requests).is_ok() => {
            restore(device, requests.as_fd(), features);
            Ok(Said::Done.into())
        }
        _ => Err(Refusal::from(&io::ErrorKind::InvalidInput.into())),
    }
}

/// Fails if the device is gone. Sets no other features.
fn restore(device: u32, requests: BorrowedFd<'_>, features: u128) {
    if let Ok(name) = name_of(device, requests)
        && let Ok(known) = tag_features(&name, requests)
    {
        let _ = set_features(&name, requests, features & known, true);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn requests_are_made_at_sockets_only() {
        let ask = Ask::Tags { device: 1, features: 0 };
        let file = File::open("/dev/null").expect("a device file").into();
        assert!(answer_about_tags(&ask, Some(file)).is_err() && answer_about_tags(&ask, None).is_err());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket").into();
        assert!(answer_about_tags(&ask, Some(socket)).is_ok());
    }

    #[test]
    fn a_device_that_goes_on_taking_tags_out_is_refused_with_what_to_do() {
        assert!(are_kept(0).is_ok());
        let error = are_kept(1 << 40).expect_err("a feature is on").to_string();
        assert!(error.contains("rx-vlan-offload") && error.contains("use kind=packet"), "{error}");
    }
}
