//! Switches that guests can be attached to.

use std::io;

use ringway_guests::Nic;

use crate::daemon::Daemon;
use crate::peers::vhost::VhostSwitch;

/// A switch for guests. It runs once it has started.
pub trait VmSwitch {
    /// Returns the NIC of guest `number`, with this address unless the switch gives it another.
    ///
    /// # Errors
    /// There is no such NIC.
    fn nic(&self, number: usize, mac: &str) -> io::Result<Nic>;

    /// Returns true if the guests are compared with guests that have a vfio-user NIC, and so need the same QEMU.
    fn has_vfio_user_qemu(&self) -> bool {
        false
    }

    /// Stops the switch, if it is a program.
    ///
    /// # Errors
    /// The program has ended.
    fn hold(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Lets the switch go on.
    ///
    /// # Errors
    /// The program has ended.
    fn resume(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl VmSwitch for Daemon {
    fn nic(&self, number: usize, mac: &str) -> io::Result<Nic> {
        if self.has_nics() {
            // The device tells the guest its address.
            return Ok(Nic::vfio_user(&self.nics()[number]));
        }
        Ok(Nic::vhost_user(&self.sockets()[number]).mac(mac))
    }

    fn hold(&mut self) -> io::Result<()> {
        VhostSwitch::hold(self)
    }

    fn resume(&mut self) -> io::Result<()> {
        VhostSwitch::resume(self)
    }
}
