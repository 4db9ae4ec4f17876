//! The interface between a process port's client and the switch.
//!
//! ```text
//! attach.sock (SOCK_SEQPACKET)            one sealed memfd per client
//!   client -> Request  (128 bytes)        +--------------------+ 0
//!   switch -> Reply    (256 bytes)        | netmap_if          |   ring_ofs[] finds the rings
//!             + memfd, kick, call         +--------------------+ doorbell_offset
//!   the connection stays open:            | doorbell, 256 B    |   indices and wake-up wishes,
//!   its end is the port's end             | per ring pair      |   each side writes its own lines
//!                                         +--------------------+
//!                                         | netmap_ring, slots |   tx rings, then rx rings
//!                                         +--------------------+
//!                                         | buffers            |   index 0 and 1 are reserved
//!                                         +--------------------+
//! ```
//!
//! The layout of `netmap_if`, `netmap_ring` and `netmap_slot` is netmap's own ABI, version 14, so that programs written for
//! netmap find what they expect. netmap's kernel looks at `head` and `cur` only inside a system call. Here no system call is
//! made, so both sides exchange their positions through the [`doorbell`]: a client's library copies `head` to the doorbell
//! and `tail` from it, as `NIOCTXSYNC` and `NIOCRXSYNC` do.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
#![forbid(unsafe_code)]

pub mod attach;
pub mod csb;
pub mod doorbell;
pub mod e1000;
pub mod layout;
pub mod netmap;
pub mod offload;
pub mod slot;
pub mod suppression;

pub use layout::{External, Interface, Layout, LayoutError, Place, Shape};
pub use offload::Offload;
pub use slot::Slot;
