//! Linux bridge with one TAP device per port, in a network namespace of its own.
//!
//! No spanning tree, no multicast snooping, no IPv6, so that nothing but the load crosses it; long queues, so that it
//! is not its short default queue that limits it. A frame written to a TAP device is handed over to the switch's core (receive packet
//! steering) where the bridge forwards it, while the generator's core writes and reads: the same division of work as for the other
//! switches.

use std::fs;
use std::io;

use ringway_traffic::Tap;

use crate::network::Network;
use crate::peers::netns;
use crate::placement::Cores;

/// Frames a TAP device keeps for its reader.
const QUEUE_LEN: usize = 4096;

/// Where the bridge does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// On the switch's core, for throughput.
    SwitchCore,
    /// In the sender's system call, for latency.
    Sender,
}

/// A bridge whose devices are handed out one by one.
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

    /// The same, and runs `tc` with each of these arguments; the devices are `tap0`, `tap1`, …
    ///
    /// # Errors
    /// As [`LinuxBridge::start`], or `tc` (Debian package iproute2) fails.
    pub fn start_shaping(cores: Cores, ports: usize, steering: Steering, tc: Vec<String>) -> io::Result<LinuxBridge> {
        let taps = netns::inside_new(move || {
            netns::run("mount", "--make-rprivate /")?;
            // The namespace's own devices show up in a sysfs mounted inside it.
            netns::run("mount", "-t sysfs ringway-bench /sys")?;
            fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").or_else(absent)?;
            netns::run("ip", "link add bridge type bridge stp_state 0 mcast_snooping 0 forward_delay 0")?;
            netns::run("ip", "link set bridge up")?;
            let taps = (0..ports).map(|number| tap(number, cores, steering)).collect::<io::Result<Vec<Tap>>>()?;
            tc.iter().try_for_each(|command| netns::run("tc", command))?;
            Ok(taps)
        })?;
        Ok(LinuxBridge { taps: taps.into_iter().rev().collect() })
    }
}

fn tap(number: usize, cores: Cores, steering: Steering) -> io::Result<Tap> {
    let name = format!("tap{number}");
    let tap = Tap::open(&name)?;
    netns::run("ip", &format!("link set {name} master bridge txqueuelen {QUEUE_LEN} up"))?;
    if steering == Steering::SwitchCore {
        let mask = format!("{:x}", 1_u64 << (cores.switch % 64));
        fs::write(format!("/sys/class/net/{name}/queues/rx-0/rps_cpus"), mask)?;
    }
    Ok(tap)
}

/// A kernel without IPv6 has nothing to be switched off.
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
