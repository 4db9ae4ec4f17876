//! Ports of the switch.

use crate::host;

/// A port, by its number. The number stays while the port stays; look ports up by name in [`ports`](crate::Program::ports).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Port(u16);

impl Port {
    /// The port of this number, whether it is there or not.
    #[inline]
    #[must_use]
    pub const fn new(number: u16) -> Port {
        Port(number)
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The port of this name, if it is there.
    #[must_use]
    pub fn named(name: &str) -> Option<Port> {
        // SAFETY: the switch reads the bytes of the name.
        found(unsafe { host::port_by_name(name.as_ptr(), name.len()) })
    }

    /// Its name, in `to`; `None` if the port is not there, or if the name does not fit.
    pub fn name(self, to: &mut [u8]) -> Option<&str> {
        // SAFETY: the switch writes at most as many bytes as `to` has.
        let length = unsafe { host::port_name(u32::from(self.0), to.as_mut_ptr(), to.len()) };
        if length < 0 {
            return None;
        }
        core::str::from_utf8(to.get(..length as usize)?).ok()
    }

    /// The ports that are there, ascending, without mirrors, as many as `to` has room for.
    pub fn all(to: &mut [Port]) -> &[Port] {
        // SAFETY: a port is a number of 2 bytes, and the switch writes at most as many as `to` has.
        let count = unsafe { host::ports(to.as_mut_ptr().cast(), to.len()) };
        &to[..count.min(to.len())]
    }
}

#[inline]
pub(crate) fn found(number: i32) -> Option<Port> {
    if number < 0 {
        None
    } else {
        Some(Port(number as u16))
    }
}

/// A set of ports, 0 to 63, for the verdict [`ports`](crate::Verdict::ports).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSet(u32);

impl PortSet {
    /// The set of this number, 0 to 63. Empty until it is set.
    #[must_use]
    pub const fn new(number: u32) -> PortSet {
        PortSet(number)
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Sets its ports. Ports that are not there are left out, also later when they leave.
    pub fn set(self, ports: &[Port]) {
        // SAFETY: a port is a number of 2 bytes; the switch reads them.
        unsafe { host::port_set(self.0, ports.as_ptr().cast(), ports.len()) }
    }
}
