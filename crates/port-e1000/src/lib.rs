//! NICs that stock guests have drivers for: the 82540EM and the 82574L, behind a vfio-user socket.
//!
//! - `offsets`, `registers`: where registers are, and registers that are plain memory; `ring_page`: registers that a front
//!   end may map.
//! - `eeprom`, `phy`, `statistics`, `clock`: the functions behind the other registers.
//! - `access_counters`: counts of register accesses.
//! - `moderation`, `interrupt`, `raise`: interrupt causes, and when they are raised.
//! - `rings`: frames in and out of descriptor rings. Values and memory only: no registers, no sockets.
//! - `device`: registers and rings of one port; `chip`: its registers; `access`: the effects of register accesses; `function`:
//!   the device as the front end sees it; `data_path`: the two directions that pollers lock.
//! - `kept`: what a successor of the process needs of a NIC.
//! - `block`: the mode with tails in the guest's memory.
//! - `input`, `output`, `bell`: the data path's three sides. No descriptor is looked at by a register access (thesis 4.4.1).
//!
//! Differences from the hardware:
//!
//! - All frames come by the first of the 82574L's two receive rings (no RSS). The hash in descriptors is 0, and Linux
//!   computes its own.
//! - There are no time stamps. The clock behind `/dev/ptp*` counts. `ethtool -T` lists stamps, because the driver goes by the
//!   chip, but a request for them fails with EAGAIN.
//! - There is no wake-up, no flow control frame, and no small packet detection (RSRPD).
//! - Frames to be cut into segments are lost in loopback.
//! - A negotiated link is there at once.
//!
//! `cargo run --release -p ringway-port-tests --example e1000_cost`: 200 instructions a frame of 60 bytes between two e1000s,
//! against 184 between two packed virtqueues.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

// Drivers choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this module
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod access;
mod access_counters;
mod bell;
mod block;
#[deny(clippy::arithmetic_side_effects)]
mod chip;
mod clock;
mod data_path;
mod device;
#[cfg(test)]
mod device_tests;
mod eeprom;
mod function;
#[cfg(fuzzing)]
pub mod fuzzing;
mod input;
mod interrupt;
#[cfg(test)]
mod interrupt_tests;
mod kept;
mod moderation;
#[cfg(test)]
mod newer_tests;
mod offsets;
mod output;
mod phy;
mod raise;
mod registers;
mod ring_page;
pub mod rings;
mod settings;
mod statistics;
#[cfg(test)]
mod succession_tests;
#[cfg(test)]
mod switched_tests;
pub mod vfio_user;
#[cfg(test)]
mod waiting_tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bell::E1000Bell;
use device::Device;
use input::E1000Input;
use output::E1000Output;
use ringway_keeper::Link;
use ringway_memory::Limits;
use ringway_runtime::Signal;

use crate::vfio_user::{Function, Observer, Server, ServerSettings};
pub use access_counters::Accesses;
pub use ringway_port::front_end::State;
use ringway_port::front_end::repeat;
use ringway_port::port_io::PortIo;
pub use settings::{Model, RECEIVE_BUFFER, Settings, Status};

/// The control side of a running port. Dropping it stops the port's thread and removes its socket.
pub struct E1000 {
    device: Arc<Device>,
    address: [u8; 6],
    _server: Server,
}

impl E1000 {
    /// Returns the state of the guest.
    #[must_use]
    pub fn status(&self) -> Status {
        repeat(|until| self.status_until(until))
    }

    /// Returns the state of the guest, or `None` if another thread holds the registers until `until` is past: the guest
    /// can make that last.
    #[must_use]
    pub fn status_until(&self, until: Instant) -> Option<Status> {
        self.device.status(until)
    }

    /// Returns how much memory the front end has shared.
    #[must_use]
    pub fn memory(&self) -> Limits {
        self.device.quota.used()
    }

    /// Returns the station address of the NIC.
    #[must_use]
    pub fn address(&self) -> [u8; 6] {
        self.address
    }

    /// Returns a handle for changes to the NIC, for another thread.
    #[must_use]
    pub fn nic(&self) -> Nic {
        Nic { device: Arc::clone(&self.device) }
    }
}

/// Changes the NIC of a running port. The guest can make each method block.
#[derive(Clone)]
pub struct Nic {
    device: Arc<Device>,
}

impl Nic {
    /// Sets the longest time before the guest gets an interrupt for sent frames.
    pub fn set_completion_delay(&self, within: Duration) {
        self.device.set_completion_delay(within);
    }

    /// Plugs the cable in or out. The guest gets an interrupt.
    pub fn set_link(&self, on: bool) {
        self.device.set_cable(on);
    }
}

/// Opens a port. From now on front ends may connect and disconnect; `observer` is told of each event.
///
/// # Errors
/// The socket cannot be opened, or the kernel has no descriptors, memory or threads left.
pub fn open(settings: &Settings, observer: Arc<dyn Observer>) -> io::Result<(PortIo, E1000)> {
    open_kept(settings, observer, &Link::default())
}

/// The same. `keeper`: has the socket and the NIC of the guest outlive this process.
///
/// # Errors
/// As for [`open`].
pub fn open_kept(settings: &Settings, observer: Arc<dyn Observer>, keeper: &Link) -> io::Result<(PortIo, E1000)> {
    let device = Arc::new(Device::new(settings, Arc::clone(&observer))?);
    let sides = PortIo {
        input: Box::new(E1000Input::new(Arc::clone(&device))),
        output: Box::new(E1000Output::new(Arc::clone(&device))),
        bell: Box::new(E1000Bell { device: Arc::clone(&device) }),
        signal: Signal::Kick(device.signal()?.into()),
    };
    let Settings { label, socket, access, .. } = settings.clone();
    let server = ServerSettings { label, socket, access };
    let interrupts = Arc::clone(device.interrupts());
    let server =
        Server::start_kept(&server, Arc::clone(&device) as Arc<dyn Function>, interrupts, observer, Some(keeper))?;
    Ok((sides, E1000 { device, address: settings.mac, _server: server }))
}
