//! Switches that guests can be attached to.

use std::io;

use ringway_guests::Nic;

use crate::daemon::{Daemon, Settings};
use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;
use crate::peers::vhost::VhostSwitch;
use crate::placement::Cores;

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

/// A switch for guests whose ports have keys.
pub trait KeyedSwitch: VmSwitch {
    /// Changes a key of the guests' ports, as `ringway port set` does.
    ///
    /// # Errors
    /// The switch refuses.
    fn set_ports(&self, key: &str) -> io::Result<()>;
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

impl KeyedSwitch for Daemon {
    fn set_ports(&self, key: &str) -> io::Result<()> {
        self.set_vhost_user(key)
    }
}

/// A daemon with a guest or a program at each end of a cable, which it has by an XDP port.
pub struct TwoHosts {
    daemons: [Daemon; 2],
    /// Dropped after the daemons, which open the namespaces by their descriptors.
    _cable: Cable,
}

impl TwoHosts {
    /// Starts a daemon for one guest, or program, in each namespace of a new cable. Each has its poller on the CPU that `bound` has for it.
    ///
    /// # Errors
    /// Not root, or a daemon does not start. The message has what it wrote to its standard error.
    pub fn start(cores: Cores, settings: &Settings, bound: [Option<usize>; 2]) -> io::Result<TwoHosts> {
        let cable = Cable::start()?;
        let start = |host, core| {
            let uplink =
                Some(format!("kind = \"xdp\"\ndevice = \"{WIRE}\"\nnetns = \"{}\"", netns::path(host).display()));
            Daemon::start(cores, &Settings { core, vhost_user: 1, uplink, ..settings.clone() })
        };
        let [near, far] = cable.hosts();
        Ok(TwoHosts { daemons: [start(near, bound[0])?, start(far, bound[1])?], _cable: cable })
    }
}

impl TwoHosts {
    /// The daemon of host `number`.
    pub fn daemon(&mut self, number: usize) -> &mut Daemon {
        &mut self.daemons[number]
    }

    /// Returns the times of the poller of host `number`, as `Daemon::times` does.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn times(&self, number: usize) -> io::Result<(f64, f64)> {
        self.daemons[number].times()
    }
}

impl VmSwitch for TwoHosts {
    fn nic(&self, number: usize, mac: &str) -> io::Result<Nic> {
        self.daemons[number].nic(0, mac)
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemons.iter_mut().try_for_each(VhostSwitch::hold)
    }

    fn resume(&mut self) -> io::Result<()> {
        self.daemons.iter_mut().try_for_each(VhostSwitch::resume)
    }
}

impl KeyedSwitch for TwoHosts {
    fn set_ports(&self, key: &str) -> io::Result<()> {
        self.daemons.iter().try_for_each(|daemon| daemon.set_vhost_user(key))
    }
}
