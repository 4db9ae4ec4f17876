//! vhost-user ports: virtio-net for stock hypervisors (the vhost-user protocol; virtio 1.3, 5.1).
//!
//! - `message`: the protocol's messages, decoded from bytes and descriptors. Knows nothing else.
//! - `session`: one connection: keeps what the front end has said, and changes the device accordingly.
//! - `link`: the port's own thread: owns the socket, accepts connections, feeds messages to the session.
//! - `device`: the queues, which the session starts and stops while pollers work on them.
//! - `input`, `output`, `bell`: the data path's sides.
//! - `inflight`: the note of frames in flight, for a successor of a killed process.
//!
//! A started ring is an immutable description and two positions of the device's own. Nothing that a driver writes moves the
//! positions.
//!
//! A [`RingFault`](crate::virtqueue::RingFault) or a bad message ends the connection, not the port: the device is reset,
//! `status` names the fault, and the port waits for the next front end. A mistake in one frame costs that frame only, and the
//! frame is counted (a frame shorter than its header, too long, or with an offload that was not negotiated); `virtqueue` has
//! the rule.
//!
//! Memory and descriptors from a front end are checked before use. Pollers wait for and signal eventfds only, and only memory
//! files are mapped, so no front end can make a poller wait.

mod bell;
mod device;
mod end;
mod features;
mod input;
mod kick;
mod link;
mod output;
mod queue;

// Front ends choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in these
// modules may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod inflight;
#[deny(clippy::arithmetic_side_effects)]
mod message;
#[deny(clippy::arithmetic_side_effects)]
mod reply;
#[deny(clippy::arithmetic_side_effects)]
mod session;
#[deny(clippy::arithmetic_side_effects)]
mod vring;

#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
mod inflight_tests;
#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod session_tests;
#[cfg(any(test, fuzzing))]
mod testing;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_engine::Signal;
use ringway_memory::Limits;

use crate::Sides;
pub use crate::front_end::Observer;
use bell::VhostBell;
use device::Device;
#[cfg(test)]
pub use inflight::Inflight;
pub use inflight::{Noted, Taken};
use input::VhostInput;
use link::Link;
use output::VhostOutput;

/// Which side listens on the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The port listens, the hypervisor connects.
    #[default]
    Server,
    /// The hypervisor listens. The port connects, and reconnects after each disconnect.
    Client,
}

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SWITCH:PORT`, for thread names and messages.
    pub label: String,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Which side listens.
    pub role: Role,
    /// Most queue pairs, 1 to 8.
    pub queues: u16,
    /// The MTU in bytes that the guest is told and that the port enforces. `None`: no MTU.
    pub mtu: Option<u16>,
    /// Whether the port offers checksum and segmentation offloads.
    pub offload: bool,
    /// File that records which chains are in flight, so that a successor of a killed process delivers no frame twice.
    /// Removed when the port is removed.
    pub record: Option<PathBuf>,
    /// Limits for the memory that the front end may share.
    pub memory: Limits,
}

/// Most queue pairs of one port.
pub const MOST_QUEUES: u16 = 8;

/// State of a port's front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No front end is connected.
    Waiting,
    /// A front end is connected, and no queue pair works yet.
    Connected,
    /// Frames flow.
    Up,
}

/// What a port knows of its front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// State of the front end.
    pub state: State,
    /// The virtio features in use.
    pub features: u64,
    /// Number of started queues.
    pub queues: u16,
    /// Size of a started queue in descriptors; 0 if no queue is started.
    pub ring_size: u16,
}

/// The control side of a running port. Dropping it stops the port's thread and removes its socket.
pub struct VhostUser {
    device: Arc<Device>,
    _link: Link,
}

impl VhostUser {
    /// Returns how much memory the front end has shared.
    #[must_use]
    pub fn memory(&self) -> Limits {
        self.device.quota().used()
    }

    /// Returns the state of the front end.
    #[must_use]
    pub fn status(&self) -> Status {
        loop {
            if let Some(status) = self.status_until(Instant::now() + Duration::from_secs(1)) {
                return status;
            }
        }
    }

    /// Returns the state of the front end, or `None` if a poller holds a queue until `until` is past: the guest can
    /// make that last.
    #[must_use]
    pub fn status_until(&self, until: Instant) -> Option<Status> {
        self.device.status(until)
    }
}

/// Opens a port. From now on front ends may connect and disconnect; `observer` is told of each event.
///
/// # Errors
/// The socket cannot be opened, or the kernel has no descriptors, memory or threads left.
pub fn open(settings: &Settings, observer: Arc<dyn Observer>) -> io::Result<(Sides, VhostUser)> {
    let device = Arc::new(Device::new(settings)?);
    let sides = Sides {
        input: Box::new(VhostInput::new(Arc::clone(&device))?),
        output: Box::new(VhostOutput::new(Arc::clone(&device))),
        bell: Box::new(VhostBell { device: Arc::clone(&device) }),
        signal: Signal::Kick(device.kicks.signal()?),
    };
    let link = Link::start(settings, Arc::clone(&device), observer)?;
    Ok((sides, VhostUser { device, _link: link }))
}
