//! QEMU's own way to a switch: a TAP device for each guest, on a Linux bridge, in a network namespace; or one guest and one bridge in each
//! of two namespaces.
//!
//! The devices have the offload header, so that the bridge passes unsegmented frames whole.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use ringway_guests::Nic;
use ringway_traffic::{Tap, open_device};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;
use crate::vm_switch::VmSwitch;

/// Name of the bridge.
pub const BRIDGE: &str = "bridge";

/// A bridge with a TAP device for each guest.
pub struct VmBridge {
    taps: Vec<File>,
    model: Option<&'static str>,
}

impl VmBridge {
    /// Makes a bridge for two guests.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn start() -> io::Result<VmBridge> {
        let taps = netns::inside_new(for_two)?;
        Ok(VmBridge { taps, model: None })
    }

    /// Makes a bridge for two guests in `namespace`.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn inside(namespace: &File) -> io::Result<VmBridge> {
        let taps = netns::inside(namespace, for_two)?;
        Ok(VmBridge { taps, model: None })
    }

    /// Makes a bridge for one guest and for a TAP device of this program.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn with_end() -> io::Result<(VmBridge, Tap)> {
        let (tap, end) = netns::inside_new(|| {
            bridge()?;
            let (tap, end) = (for_guest("tap0")?, Tap::open("tap1")?);
            netns::run("ip", &format!("link set tap1 master {BRIDGE} up"))?;
            Ok((tap, end))
        })?;
        Ok((VmBridge { taps: vec![tap], model: None }, end))
    }

    /// Makes a bridge for one guest at each end of `cable`.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn between_hosts(cable: &Cable) -> io::Result<VmBridge> {
        let host = |namespace| {
            netns::inside(namespace, || {
                bridge()?;
                netns::run("ip", &format!("link set {WIRE} master {BRIDGE}"))?;
                for_guest("tap0")
            })
        };
        // The devices keep their namespaces.
        let taps = cable.hosts().iter().map(host).collect::<io::Result<_>>()?;
        Ok(VmBridge { taps, model: None })
    }

    /// Guests get NICs of this model.
    #[must_use]
    pub fn model(mut self, model: &'static str) -> VmBridge {
        self.model = Some(model);
        self
    }
}

/// Makes the bridge, and devices for two guests.
fn for_two() -> io::Result<Vec<File>> {
    bridge()?;
    ["tap0", "tap1"].map(for_guest).into_iter().collect()
}

/// Makes the bridge.
fn bridge() -> io::Result<()> {
    netns::run("ip", &format!("link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0 forward_delay 0"))?;
    netns::run("ip", &format!("link set {BRIDGE} up"))
}

/// Makes a device on it that QEMU opens.
fn for_guest(name: &str) -> io::Result<File> {
    let tap = open_device(name, true)?;
    netns::run("ip", &format!("link set {name} master {BRIDGE} up"))?;
    Ok(tap)
}

impl VmSwitch for VmBridge {
    fn nic(&self, number: usize, mac: &str) -> io::Result<Nic> {
        let tap = &self.taps[number];
        // QEMU inherits it.
        fcntl_setfd(tap, FdFlags::empty())?;
        let nic = Nic::netdev(&format!("tap,fd={}", tap.as_raw_fd())).mac(mac);
        Ok(match self.model {
            Some(model) => nic.model(model),
            None => nic,
        })
    }

    fn has_vfio_user_qemu(&self) -> bool {
        self.model.is_some()
    }
}
