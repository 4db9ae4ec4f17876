//! Linux guests on vhost-user, stream and e1000 ports: stock QEMU, Debian's kernels, every feature on and off, and the
//! usual events of virtual machines and switches. Also the driver of Linux guests, and Ringway itself in a guest.
//!
//! Few tests run at a time, because emulated guests need much processor time, and many share a guest (`shared`). `make guests` stops a guest for longer.
//! `RINGWAY_NO_QEMU=1` skips guests, for machines without QEMU.

mod coalescing;
mod driver;
mod driver_package;
mod e1000;
mod events;
mod features;
mod inside;
mod lying;
mod moves;
mod outlived;
mod own_e1000;
mod own_nic;
mod pair;
mod restarts;
mod rings;
mod scene;
mod shared;
mod streams;
mod vlans;
