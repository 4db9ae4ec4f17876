//! Linux guests on vhost-user and stream ports: stock QEMU, Debian's kernels, every feature on and off, and everything that happens to
//! virtual machines and to switches.
//!
//! One test at a time: guests are emulated, and two cores are few. `make guests` lets one stand still for
//! longer. `RINGWAY_NO_QEMU=1` leaves guests out, for machines that cannot have QEMU.

mod e1000;
mod events;
mod features;
mod moves;
mod restarts;
mod scene;
mod streams;
mod vlans;
