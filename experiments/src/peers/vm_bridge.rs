//! QEMU's own way to a switch: a TAP device for each guest, on a Linux bridge, in a network namespace of its own.
//!
//! The devices have the offload header, so that frames with segmentation left undone pass the bridge whole.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use ringway_guests::Nic;
use ringway_traffic::open_device;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::peers::netns;
use crate::vm::VmSwitch;

/// A bridge with two TAP devices.
pub struct VmBridge {
    taps: [File; 2],
}

impl VmBridge {
    /// Makes it.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn start() -> io::Result<VmBridge> {
        let taps = netns::inside_new(|| {
            netns::run("ip", "link add bridge type bridge stp_state 0 mcast_snooping 0 forward_delay 0")?;
            netns::run("ip", "link set bridge up")?;
            let tap = |name: &str| {
                let tap = open_device(name, true)?;
                netns::run("ip", &format!("link set {name} master bridge up"))?;
                Ok::<File, io::Error>(tap)
            };
            Ok([tap("tap0")?, tap("tap1")?])
        })?;
        Ok(VmBridge { taps })
    }
}

impl VmSwitch for VmBridge {
    fn nic(&self, number: usize) -> io::Result<Nic> {
        let tap = &self.taps[number];
        // QEMU inherits it.
        fcntl_setfd(tap, FdFlags::empty())?;
        Ok(Nic::netdev(&format!("tap,fd={}", tap.as_raw_fd())))
    }
}
