//! NICs that stock guests have drivers for: the 82540EM and the 82574L, behind a vfio-user socket.
//!
//! - `offsets`, `registers`: where registers are, and registers that are plain memory; `ring_page`: registers that a front
//!   end may map.
//! - `eeprom`, `phy`, `statistics`, `clock`: the functions behind the other registers.
//! - `account`: counts of register accesses.
//! - `moderation`, `interrupt`: interrupt causes, and when they are raised.
//! - `rings`: frames in and out of descriptor rings. Values and memory only: no registers, no sockets.
//! - `device`: registers and rings of one port; `access`: the effects of register accesses; `function`: the device as the
//!   front end sees it; `sides`: the two directions that pollers lock.
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
//! `cargo run --release -p ringway-ports --example e1000_cost`: 200 instructions a frame of 60 bytes between two e1000s,
//! against 184 between two packed virtqueues.

// Drivers choose the numbers here: release builds of this crate have no overflow checks, and no arithmetic here may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod access;
mod account;
mod bell;
mod block;
mod clock;
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
mod moderation;
#[cfg(test)]
mod newer_tests;
mod offsets;
mod output;
mod phy;
mod registers;
mod ring_page;
pub mod rings;
mod sides;
mod statistics;
#[cfg(test)]
mod switched_tests;
#[cfg(test)]
mod waiting_tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_engine::Signal;
use ringway_memory::Limits;

use crate::Sides;
use crate::vfio_user::{Function, Observer, Server, ServerSettings};
pub use account::Accesses;
use bell::E1000Bell;
use device::Device;
use input::E1000Input;
use output::E1000Output;

/// Which NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// 82540EM: one pin, legacy descriptors; the driver is e1000.
    #[default]
    E1000,
    /// 82574L: messages, extended descriptors, ring registers that can be mapped; the driver is e1000e.
    E1000e,
}

/// What [`Settings::receive_buffer`] should be: 48 KiB of an 82540EM's own (SDM 13.4.16) are 32 long frames, less than TCP sends
/// at once.
pub const RECEIVE_BUFFER: usize = 512 << 10;

/// What a port is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SWITCH:PORT`, for thread names and messages.
    pub label: String,
    /// The socket's path.
    pub socket: PathBuf,
    /// Which NIC.
    pub model: Model,
    /// The NIC's own address.
    pub mac: [u8; 6],
    /// Whether the cable is plugged in.
    pub link: bool,
    /// Whether the pages of the ring registers are mapped into the guest (82574L).
    pub mapped: bool,
    /// Whether the paravirtual extension is offered (thesis 4.4.2).
    pub csb: bool,
    /// Longest time until the guest is told that frames were sent, while its ring is not nearly full of them.
    pub completion_delay: Duration,
    /// Bytes of the memory in which frames wait for descriptors; one takes whole units of 64.
    pub receive_buffer: usize,
    /// How much memory the front end may give.
    pub memory: Limits,
}

/// How far a port's front end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none.
    Waiting,
    /// It has connected; no driver has brought the link up and enabled both directions yet.
    Connected,
    /// Frames flow.
    Up,
}

/// What is known of a port's guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How far it has come.
    pub state: State,
    /// Whether the link is up, as the guest sees it.
    pub link: bool,
    /// How interrupts reach the guest: `none`, `intx`, `msi` or `msi-x`.
    pub interrupts: &'static str,
    /// Descriptors of the transmit ring; 0 when it is off.
    pub transmit_ring: u32,
    /// Descriptors of the receive ring; 0 when it is off.
    pub receive_ring: u32,
    /// What the guest's driver has taken so far.
    pub accesses: Accesses,
}

/// A running port's control side. Ends the port's thread and removes its socket when dropped.
pub struct E1000 {
    device: Arc<Device>,
    address: [u8; 6],
    _server: Server,
}

impl E1000 {
    /// How the guest is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        loop {
            if let Some(status) = self.status_until(Instant::now() + Duration::from_secs(1)) {
                return status;
            }
        }
    }

    /// The same; `None` when that cannot be told until then, as the guest keeps the port's threads waiting.
    #[must_use]
    pub fn status_until(&self, until: Instant) -> Option<Status> {
        self.device.status(until)
    }

    /// How much memory the front end has given.
    #[must_use]
    pub fn memory(&self) -> Limits {
        self.device.quota.used()
    }

    /// The NIC's own address.
    #[must_use]
    pub fn address(&self) -> [u8; 6] {
        self.address
    }

    /// The NIC, which another thread can set.
    #[must_use]
    pub fn nic(&self) -> Nic {
        Nic { device: Arc::clone(&self.device) }
    }
}

/// What can be set of a running port's NIC. Its guest can keep each of these waiting.
#[derive(Clone)]
pub struct Nic {
    device: Arc<Device>,
}

impl Nic {
    /// Changes the longest time until the guest is told that frames were sent.
    pub fn set_completion_delay(&self, within: Duration) {
        self.device.set_completion_delay(within);
    }

    /// Plugs the cable in, or out. The guest is told.
    pub fn set_link(&self, on: bool) {
        self.device.set_cable(on);
    }
}

/// Makes a port. Its front end may come and go from now on; `observer` is told.
///
/// # Errors
/// The socket cannot be had, or the kernel has no descriptors, memory or threads left.
pub fn open(settings: &Settings, observer: Arc<dyn Observer>) -> io::Result<(Sides, E1000)> {
    let device = Arc::new(Device::new(settings, Arc::clone(&observer))?);
    let sides = Sides {
        input: Box::new(E1000Input::new(Arc::clone(&device))),
        output: Box::new(E1000Output::new(Arc::clone(&device))),
        bell: Box::new(E1000Bell { device: Arc::clone(&device) }),
        signal: Signal::Kick(device.signal()?),
    };
    let server = ServerSettings { label: settings.label.clone(), socket: settings.socket.clone() };
    let interrupts = Arc::clone(device.interrupts());
    let server = Server::start(&server, Arc::clone(&device) as Arc<dyn Function>, interrupts, observer)?;
    Ok((sides, E1000 { device, address: settings.mac, _server: server }))
}
