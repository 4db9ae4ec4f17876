//! A lean driver of Intel's e1000 NICs in user space. It loads every vfio-user server with an 82540EM or an 82574L and counts
//! the cost of each way of driving the NIC.
//!
//! The driver sets the device up as the Linux drivers do. The [modes](E1000Mode) differ in when registers are touched:
//! register accesses are what makes emulated NICs slow, and what [`Counters`] count.
//!
//! | file | holds |
//! |---|---|
//! | `registers.rs` | the meaning of registers, and access to them by message or by memory |
//! | `bring_up.rs` | from a connection to a NIC that is ready to work |
//! | `interrupt.rs` | the work at an interrupt |
//! | `options.rs`, `counters.rs`, `endpoint.rs` | the [`Endpoint`](crate::Endpoint) |

mod bring_up;
mod counters;
mod endpoint;
mod interrupt;
mod options;
mod registers;

pub use counters::Counters;
pub use endpoint::E1000Endpoint;
pub use options::{E1000Error, E1000Mode, E1000Options};
pub use ringway_abi::e1000::register;
pub use ringway_drivers::vfio_user::{Area, DeviceInfo, IRQ_INTX, IRQ_MSI, IRQ_MSI_X, Region, VfioUser, VfioUserError};
