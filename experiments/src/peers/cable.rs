//! Two network namespaces that a veth pair joins, as a cable joins two hosts.
//!
//! Nothing but what is attached to its ends sends on it, and frames cross it one by one: it has no segmentation offload.

use std::fs::{self, File};
use std::io;

use crate::peers::netns;

/// Name of the device at each end.
pub const WIRE: &str = "wire";

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

    /// The namespaces.
    #[must_use]
    pub fn hosts(&self) -> &[File; 2] {
        &self.hosts
    }
}
