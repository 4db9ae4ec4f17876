//! Settings and status of a port.

use std::path::PathBuf;
use std::time::Duration;

use ringway_memory::Limits;
use ringway_port::front_end::{SocketAccess, State};

use super::access_counters::Accesses;

/// The model of a NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// 82540EM: one interrupt pin and legacy descriptors. The guest's driver is e1000.
    #[default]
    E1000,
    /// 82574L: message-signalled interrupts, extended descriptors, and ring registers that can be mapped. The guest's
    /// driver is e1000e.
    E1000e,
}

/// Recommended value of [`Settings::receive_buffer`] in bytes. The 48 KiB of a real 82540EM (SDM 13.4.16) hold 32 long
/// frames, less than a burst of TCP.
pub const RECEIVE_BUFFER: usize = 512 << 10;

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SWITCH:PORT`, for thread names and messages.
    pub label: String,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Who may connect to it.
    pub access: SocketAccess,
    /// Model of the NIC.
    pub model: Model,
    /// Station address of the NIC.
    pub mac: [u8; 6],
    /// Whether the cable is plugged in.
    pub link: bool,
    /// Whether the front end may map the pages of the ring registers into the guest (82574L).
    pub mapped: bool,
    /// Whether the paravirtual extension is offered (thesis 4.4.2).
    pub csb: bool,
    /// Longest time before the guest gets an interrupt for sent frames, as long as its ring is not nearly full of them.
    pub completion_delay: Duration,
    /// Size in bytes of the packet buffer, in which frames wait for descriptors. A frame takes a multiple of 64 bytes.
    pub receive_buffer: usize,
    /// Limits for the memory that the front end may share.
    pub memory: Limits,
}

/// What a port knows of its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// State of the front end.
    pub state: State,
    /// True if the guest sees a link.
    pub link: bool,
    /// Kind of interrupts in use: `none`, `intx`, `msi` or `msi-x`.
    pub interrupts: &'static str,
    /// Size of the transmit ring in descriptors; 0 while it is off.
    pub transmit_ring: u32,
    /// Size of the receive ring in descriptors; 0 while it is off.
    pub receive_ring: u32,
    /// Register accesses and interrupts of the guest's driver so far.
    pub accesses: Accesses,
}
