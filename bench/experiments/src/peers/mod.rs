//! Peers: the switches that a user would pick instead, set up in the same way every time.

pub mod cable;
pub mod e1000;
mod hugepages;
pub mod linux_bridge;
pub(crate) mod netns;
pub mod ovs_dpdk;
pub mod program;
pub mod testpmd;
pub mod testpmd_xdp;
pub mod vde;
pub mod veth;
pub mod vhost;
pub mod virtio_user;
pub mod vm_bridge;
pub mod wire_end;
