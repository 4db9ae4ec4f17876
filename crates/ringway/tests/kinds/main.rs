//! Each kind of port, against programs that nobody here wrote: the kernel's stack, DPDK, iperf3.

mod client_ports;
mod e1000_ports;
mod e1000_survives;
mod namespaces;
mod nics;
mod offloads;
mod outlived;
mod outlived_devices;
mod outlived_streams;
mod queues;
mod tap;
mod vhost_user_ports;
mod virtio_user;
