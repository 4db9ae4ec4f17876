//! What a program can ask the switch for at any time.

use crate::host;
use crate::port::{found, Port};

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// The port that an address is bound to or was learned at, in a VLAN ([`vlan`](crate::Frame::vlan) of a frame).
#[inline]
#[must_use]
pub fn mac_lookup(address: &[u8; 6], vlan: u16) -> Option<Port> {
    // SAFETY: the switch reads 6 bytes.
    found(unsafe { host::mac_lookup(address.as_ptr(), u32::from(vlan)) })
}

/// Nanoseconds of a clock that never goes back.
#[inline]
#[must_use]
pub fn now() -> u64 {
    // SAFETY: no memory is used.
    unsafe { host::now_ns() }
}

/// 64 random bits; not for secrets.
#[must_use]
pub fn random() -> u64 {
    // SAFETY: no memory is used.
    unsafe { host::random() }
}

/// Calls [`timer`](crate::Program::timer) once, after so many nanoseconds (at least a million). Replaces the time before; 0: not at all.
pub fn timer(ns: u64) {
    // SAFETY: no memory is used.
    unsafe { host::timer_set(ns) }
}

/// Number of this instance, from 0. Each poller has one.
#[must_use]
pub fn instance() -> u32 {
    // SAFETY: no memory is used.
    unsafe { host::instance() }
}

/// Number of instances.
#[must_use]
pub fn instances() -> u32 {
    // SAFETY: no memory is used.
    unsafe { host::instances() }
}
