//! Linux veth pairs, for programs with packet sockets at their ends.
//!
//! The pairs are in one network namespace without IPv6, so that nothing but the programs sends on them. A frame that is sent at one end is
//! delivered at the other end by the sender's core, in its system call or right after it.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use crate::peers::netns;
use crate::peers::program::find_program;

/// Frames that a device keeps.
const QUEUE_LEN: usize = 4096;

/// A namespace with pairs of devices.
pub struct Veth {
    namespace: File,
}

impl Veth {
    /// Makes a namespace with these pairs.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn start(pairs: &'static [(&'static str, &'static str)]) -> io::Result<Veth> {
        let namespace = netns::inside_new(move || {
            // A kernel without IPv6 needs nothing.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            for (one, other) in pairs {
                netns::run("ip", &format!("link add dev {one} type veth peer name {other}"))?;
                for end in [one, other] {
                    netns::run("ip", &format!("link set dev {end} txqueuelen {QUEUE_LEN} up"))?;
                }
            }
            netns::current()
        })?;
        Ok(Veth { namespace })
    }

    /// Returns a command that executes `program` in the namespace.
    ///
    /// # Errors
    /// `nsenter` (Debian package util-linux) is not installed.
    pub fn command(&self, program: &Path) -> io::Result<Command> {
        let nsenter = find_program("nsenter").ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "nsenter is not installed (Debian: apt-get install util-linux)")
        })?;
        let mut command = Command::new(nsenter);
        command.arg(format!("--net={}", netns::path(&self.namespace).display())).arg(program);
        Ok(command)
    }
}
