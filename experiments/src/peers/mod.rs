//! Peers: the switches that a user would pick instead, set up in the same way every time.

pub mod e1000;
mod hugepages;
pub mod linux_bridge;
mod netns;
pub mod ovs_dpdk;
pub mod testpmd;
pub mod vde;
pub mod vhost;
pub mod virtio_user;
pub mod vm_bridge;

use std::path::PathBuf;

/// Path of a program; `None`: it is not installed.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    // Administration tools are often left out of an ordinary user's PATH.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
