//! vhost-user ports: virtio-net for stock hypervisors (the vhost-user protocol; virtio 1.3, 5.1).
//!
//! - `message`: the protocol's messages, decoded from bytes and descriptors. Knows nothing else.
//! - `session`: one connection: keeps what the front end has said, and changes the device accordingly.
//! - `changed`, `resume`: what a successor of the switch needs to go on with a connection.
//! - `protocol`: the port's own thread with one connection: feeds messages to the session.
//! - `config`: the device's configuration space, for front ends that ask for it.
//! - `device`: the queues, which the session starts and stops while pollers work on them.
//! - `input`, `output`, `bell`: the data path's sides.
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
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod bell;
mod changed;
mod device;
mod end;
mod features;
mod input;
mod kick;
mod output;
mod protocol;
mod queue;
mod settings;
pub mod virtqueue;

// Front ends choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in these
// modules may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod config;
#[deny(clippy::arithmetic_side_effects)]
mod message;
#[deny(clippy::arithmetic_side_effects)]
mod reply;
#[deny(clippy::arithmetic_side_effects)]
mod resume;
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
mod resume_tests;
#[cfg(test)]
mod session_tests;
#[cfg(any(test, fuzzing))]
mod testing;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bell::VhostBell;
use device::Device;
use input::VhostInput;
use output::VhostOutput;
use protocol::VhostProtocol;
use ringway_keeper::Link;
use ringway_memory::Limits;
use ringway_port::front_end::{Files, Service, Socket, repeat};
use ringway_port::port_io::PortIo;
use ringway_runtime::Signal;

use crate::virtqueue::Record;
pub use crate::virtqueue::{InflightNote, InflightRange, answer_about_record};
pub use ringway_port::front_end::{Observer, Role, State};
pub use settings::{MOST_QUEUES, Settings, Status};

/// The control side of a running port. Dropping it stops the port's thread and removes its socket.
pub struct VhostUser {
    device: Arc<Device>,
    _service: Service,
    // Dropped last: no queue runs any more, and the next port has not opened its file yet.
    _record: Option<Record>,
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
        repeat(|until| self.status_until(until))
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
pub fn open(settings: &Settings, observer: Arc<dyn Observer>) -> io::Result<(PortIo, VhostUser)> {
    open_kept(settings, observer, &Link::default())
}

/// The same. With a keeper, the socket and the connection outlive the switch.
///
/// # Errors
/// As of [`open`].
pub fn open_kept(settings: &Settings, observer: Arc<dyn Observer>, keeper: &Link) -> io::Result<(PortIo, VhostUser)> {
    let Settings { label, socket, role, access, .. } = settings;
    let socket = Socket { label, path: socket, role: *role, access, files: Files::Taken, keeper: Some(keeper) };
    // First: without a socket, what a predecessor left stays where it is.
    let socket = socket.open()?;
    let device = Arc::new(Device::new(settings, keeper)?);
    let record = device.take_record_file();
    let sides = PortIo {
        input: Box::new(VhostInput::new(Arc::clone(&device))?),
        output: Box::new(VhostOutput::new(Arc::clone(&device))),
        bell: Box::new(VhostBell { device: Arc::clone(&device) }),
        signal: Signal::Kick(device.kicks.watch()),
    };
    let service = socket.serve(VhostProtocol::new(Arc::clone(&device)), observer)?;
    Ok((sides, VhostUser { device, _service: service, _record: record }))
}
