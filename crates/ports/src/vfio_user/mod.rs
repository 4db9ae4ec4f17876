//! PCI devices for stock hypervisors, by the vfio-user protocol (QEMU, docs/interop/vfio-user.rst).
//!
//! - `function`: what a device is to this module; `pci`: the configuration space of one.
//! - `interrupts`: what reaches the guest.
//! - `message`, `version`: the protocol's messages, decoded from bytes and descriptors; `reply`: their answers.
//! - `session`: one connection: what has been said (`dma`: of memory), and what follows from it; `refusal`: or not.
//! - `server`: the port's own thread: connections come and go, messages arrive; `nap`: when it sleeps while they do.
//!
//! A front end that breaks the rules loses its connection, and the port waits for the next.

mod function;
mod interrupts;
mod nap;
pub mod pci;
mod server;
mod unmask;
mod version;

// Front ends choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in these
// modules may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod dma;
#[deny(clippy::arithmetic_side_effects)]
mod message;
#[deny(clippy::arithmetic_side_effects)]
mod refusal;
#[deny(clippy::arithmetic_side_effects)]
mod reply;
#[deny(clippy::arithmetic_side_effects)]
mod session;

#[cfg(test)]
mod client;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
mod pci_tests;
#[cfg(test)]
mod server_tests;
#[cfg(any(test, fuzzing))]
mod testing;

pub use crate::front_end::Observer;
pub use function::{BadAccess, CONFIG_REGION, Dma, Function, Irqs, MapArea, Mode, REGIONS, RegionInfo};
pub use interrupts::Interrupts;
pub use server::{Server, ServerSettings};
