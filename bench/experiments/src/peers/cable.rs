//! Two network namespaces that a veth pair joins, as a cable joins two hosts.
//!
//! Nothing but what is attached to its ends sends on it, and frames cross it one by one: it has no segmentation offload.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::peers::netns;
use crate::placement::Cores;

/// Name of the device at each end.
pub const WIRE: &str = "wire";

/// What does the kernel's work of receiving at the near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiving {
    /// A thread of the kernel on the switch's core, for switches that do not poll.
    Thread,
    /// The source's core, for switches that spin: they would take half of a thread's time on theirs, and lose what it brings meanwhile.
    Source,
}

/// Two namespaces, with an end of the cable in each.
pub struct Cable {
    hosts: [File; 2],
}

impl Cable {
    /// Makes the namespaces and the cable.
    ///
    /// # Errors
    /// Not root, or `ip` or `ethtool` (Debian packages iproute2 and ethtool) fails.
    pub fn start() -> io::Result<Cable> {
        let host = || {
            netns::inside_new(|| {
                // A kernel without IPv6 needs nothing.
                let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
                netns::current()
            })
        };
        let cable = Cable { hosts: [host()?, host()?] };
        let [near, far] = &cable.hosts;
        let there = netns::path(far);
        let pair = format!("link add dev {WIRE} type veth peer name {WIRE} netns {}", there.display());
        netns::inside(near, || netns::run("ip", &pair))?;
        for host in &cable.hosts {
            netns::inside(host, || {
                netns::run("ethtool", &format!("-K {WIRE} tso off gso off"))?;
                netns::run("ip", &format!("link set dev {WIRE} up"))
            })?;
        }
        Ok(cable)
    }

    /// Sets the near end up to receive.
    ///
    /// # Errors
    /// Not root, or `ethtool` (Debian package ethtool) fails.
    pub fn receive(&self, cores: Cores, by: Receiving) -> io::Result<()> {
        let [near, _] = &self.hosts;
        netns::inside(near, || {
            netns::own_sysfs()?;
            let write = |name: &str, value: &str| fs::write(format!("/sys/class/net/{WIRE}/{name}"), value);
            // A veth device has no NAPI otherwise.
            netns::run("ethtool", &format!("-K {WIRE} gro on"))?;
            if by == Receiving::Thread {
                write("threaded", "1")?;
                pin_threads(cores.switch)?;
            }
            Ok(())
        })
    }

    /// Opens the far end's counter of received frames.
    ///
    /// # Errors
    /// There is no procfs.
    pub fn received(&self) -> io::Result<Received> {
        let [_, far] = &self.hosts;
        // An open file stays that of the namespace in which it was opened.
        Ok(Received(netns::inside(far, || File::open("/proc/thread-self/net/dev"))?))
    }

    /// The namespaces.
    #[must_use]
    pub fn hosts(&self) -> &[File; 2] {
        &self.hosts
    }
}

/// Moves the kernel's threads of all cables' near ends to a core.
fn pin_threads(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may have ended.
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if comm.starts_with(&format!("napi/{WIRE}-")) {
            sched_setaffinity(Pid::from_raw(pid), &cores)?;
        }
    }
    Ok(())
}

/// A counter of the frames that the far end has received.
pub struct Received(File);

impl Received {
    /// Returns their number.
    ///
    /// # Errors
    /// The device is gone.
    pub fn frames(&self) -> io::Result<u64> {
        let mut bytes = [0; 4096];
        let len = self.0.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        frames_of(&text).ok_or_else(|| io::Error::other(format!("{WIRE} is not in /proc/net/dev")))
    }
}

/// Reads the second number of the device's line: bytes, packets, …
fn frames_of(text: &str) -> Option<u64> {
    let of = |line: &str| line.trim_start().strip_prefix(WIRE)?.strip_prefix(':').map(str::to_owned);
    text.lines().find_map(of)?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_received_frames_of_the_wire_are_read_from_its_own_line() {
        let text =
            "Inter-|   Receive\n face |bytes    packets\n wire2: 1 2 3\n  wire: 600 10 0 0 0 0 0 0 7 8\n    lo: 4 5\n";
        assert_eq!(frames_of(text), Some(10));
        assert_eq!(frames_of("    lo: 4 5\n"), None);
    }
}
