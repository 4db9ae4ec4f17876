//! Linux bridge with one TAP device per port, in a network namespace.
//!
//! Without spanning tree, multicast snooping and IPv6 only the load crosses the bridge. Queues are longer than the default, so that
//! they do not limit the rate. Receive packet steering moves a frame written to a TAP device to the switch's core, where the bridge
//! forwards it, while the generator's core writes and reads. The other switches divide the work in this way, too.

use std::fs;
use std::io;

use ringway_traffic::Tap;

use crate::network::Network;
use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;
use crate::placement::Cores;

/// Frames a TAP device keeps for its reader.
const QUEUE_LEN: usize = 4096;

/// Core on which the bridge works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// On the switch's core, for throughput.
    SwitchCore,
    /// In the sender's system call, for latency.
    Sender,
}

/// A bridge; each attached port takes the next of its devices.
pub struct LinuxBridge {
    taps: Vec<Tap>,
}

impl LinuxBridge {
    /// A bridge with `ports` TAP devices.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn start(cores: Cores, ports: usize, steering: Steering) -> io::Result<LinuxBridge> {
        Self::start_shaping(cores, ports, steering, Vec::new())
    }

    /// Makes a bridge with `ports` TAP devices, called `tap0`, `tap1`, …, and runs `tc` with each of these arguments.
    ///
    /// # Errors
    /// Not root, or `ip` or `tc` (Debian package iproute2) fails.
    pub fn start_shaping(cores: Cores, ports: usize, steering: Steering, tc: Vec<String>) -> io::Result<LinuxBridge> {
        let taps = netns::inside_new(move || {
            fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").or_else(absent)?;
            bridge()?;
            let taps = (0..ports).map(|number| tap(number, cores, steering)).collect::<io::Result<Vec<Tap>>>()?;
            tc.iter().try_for_each(|command| netns::run("tc", command))?;
            Ok(taps)
        })?;
        Ok(LinuxBridge { taps: taps.into_iter().rev().collect() })
    }

    /// Makes a bridge with one TAP device and the near end of `cable`, which receives by a thread.
    ///
    /// # Errors
    /// As [`LinuxBridge::start`].
    pub fn on_cable(cores: Cores, cable: &Cable) -> io::Result<LinuxBridge> {
        let [near, _] = cable.hosts();
        let tap = netns::inside(near, || {
            bridge()?;
            // The kernel's thread brings its frames to the switch's core.
            join(WIRE, cores, Steering::Sender)?;
            tap(0, cores, Steering::SwitchCore)
        })?;
        Ok(LinuxBridge { taps: vec![tap] })
    }
}

/// Makes the bridge in the calling thread's namespace.
fn bridge() -> io::Result<()> {
    netns::own_sysfs()?;
    netns::run("ip", "link add bridge type bridge stp_state 0 mcast_snooping 0 forward_delay 0")?;
    netns::run("ip", "link set bridge up")
}

fn tap(number: usize, cores: Cores, steering: Steering) -> io::Result<Tap> {
    let name = format!("tap{number}");
    let tap = Tap::open(&name)?;
    join(&name, cores, steering)?;
    Ok(tap)
}

/// Makes the device `name` a port of the bridge.
fn join(name: &str, cores: Cores, steering: Steering) -> io::Result<()> {
    netns::run("ip", &format!("link set {name} master bridge txqueuelen {QUEUE_LEN} up"))?;
    if steering == Steering::SwitchCore {
        let mask = format!("{:x}", 1_u64 << (cores.switch % 64));
        fs::write(format!("/sys/class/net/{name}/queues/rx-0/rps_cpus"), mask)?;
    }
    Ok(())
}

/// Switches IPv6 off. A kernel without IPv6 needs nothing.
fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Network for LinuxBridge {
    type Port = Tap;

    fn attach(&mut self, count: usize) -> io::Result<Vec<Tap>> {
        if count > self.taps.len() {
            return Err(io::Error::other(format!("the bridge has only {} devices left", self.taps.len())));
        }
        Ok((0..count).filter_map(|_| self.taps.pop()).collect())
    }
}
