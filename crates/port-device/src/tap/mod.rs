//! TAP ports: a network device of the host or of a namespace. What the stack sends comes in, and what goes out arrives in the
//! stack.
//!
//! Frames come with the work that the stack left undone, checksums and segmentation, and may go to the stack like that
//! (IFF_VNET_HDR). Segmentation of UDP (USO) needs Linux 6.2, and segmentation in UDP tunnels Linux 6.17. One TCP stream between two namespaces over TAP ports reached
//! 1.5 Gbit/s without offloads and 9.4 Gbit/s with them (two cores, one of them the poller's; same minute, two runs each).
//!
//! The kernel takes and gives one frame per system call, and has no flags in memory to watch: a poller reads the device while
//! frames come, and waits for the device's descriptor otherwise. A frame that arrives between the last empty read and the
//! wait ends the wait.

mod device;

use std::io;

use ringway_keeper::Link;
use ringway_port::port_io::PortIo;

use crate::kept::{self, Device, Found};
pub use device::Settings;

impl Settings {
    fn kept(&self) -> Device<'_> {
        Device { kind: "tap", name: &self.device, port: "" }
    }
}

/// Opens the device in the network namespace of the calling thread, brings it up, and makes a port of it. If there is
/// no such device, makes one that is removed with the port. A persistent device is used and stays. With a keeper, the device outlives the switch: one that a
/// predecessor left is used as it is, with what others have set at it since.
///
/// # Errors
/// The device cannot be opened. The error says why, and what would help.
pub fn open(settings: &Settings, keeper: &Link) -> io::Result<PortIo> {
    kept::port(keeper, settings.kept(), &settings.mtu, || device::open(settings))
}

/// Opens the device as [`open`] does, for a process without privileges. A device at one of the places in `left` was left by a predecessor.
///
/// # Errors
/// As above.
pub fn find(settings: &Settings, left: &[String]) -> io::Result<Found> {
    kept::find(settings.kept(), left, || device::open(settings))
}

/// Makes a port of a device that was found. `None`: it has to be opened anew.
///
/// # Errors
/// The kernel refuses.
pub fn made(settings: &Settings, keeper: &Link, found: Found) -> io::Result<Option<PortIo>> {
    kept::made::<device::OpenTap>(keeper, settings.kept(), &settings.mtu, found)
}
