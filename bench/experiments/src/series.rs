//! Names of curves that several experiments have.

/// Name of the bare ring's curve. Every rate is stated as a fraction of the bare ring's.
pub const ANCHOR: &str = "anchor";
/// Name of Ringway's curves.
pub const RINGWAY: &str = "ringway";
/// Name of the Linux bridge's curves.
pub const LINUX_BRIDGE: &str = "linux-bridge";
/// Name of VDE's curves.
pub const VDE: &str = "vde";
/// Name of Open vSwitch's curves.
pub const OVS_DPDK: &str = "ovs-dpdk";
/// Name of the curves of DPDK's own cross-connect.
pub const TESTPMD: &str = "testpmd io";
/// Name of the curves of DPDK's source and sink at an XDP socket.
pub const TESTPMD_XDP: &str = "testpmd af_xdp";
/// Name of the curves of DPDK's cross-connect of an XDP socket and a vhost-user port.
pub const TESTPMD_XDP_IO: &str = "testpmd af_xdp io";
/// Name of the curves of Open vSwitch with an XDP socket.
pub const OVS_XDP: &str = "ovs-dpdk af_xdp";
/// Name of the curves of QEMU's TAP devices on a Linux bridge.
pub const QEMU_TAP_BRIDGE: &str = "qemu tap, linux bridge";
