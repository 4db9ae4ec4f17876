//! PCI devices for stock hypervisors, by the vfio-user protocol (QEMU, docs/interop/vfio-user.rst), as QEMU's `vfio-user-pci`
//! device uses it.
//!
//! - `function`: the interface of a device to this module: configuration space, regions, interrupts; `pci`: a configuration
//!   space.
//! - `interrupts`: interrupts to the guest; `unmask`: the end of the pin's mask.
//! - `message`, `version`: the protocol's messages, decoded from bytes and descriptors. They know nothing else. `reply`: the
//!   answers.
//! - `session`: one connection: judges requests and changes the function accordingly; `dma`: the guest's memory; `refusal`:
//!   reasons for which a request is refused.
//! - `keeping`, `kept_files`: what a successor of this process needs to go on with a connection.
//! - `server`, `protocol`: the port's own thread: receives and answers messages; `coalescing`: when the thread sleeps while messages
//!   come.
//!
//! A request that cannot be had is answered by errno, and the user is told of the first such answer. Only bytes that are no
//! message, or a message out of order, end the connection, because nothing behind them can be understood. The port then waits
//! for the next front end.

mod coalescing;
mod function;
mod interrupts;
mod keeping;
mod kept_files;
pub mod pci;
mod protocol;
mod server;
mod unmask;
mod version;

// Front ends choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in these
// modules may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod dma;
mod limits;
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

pub use function::{BadAccess, CONFIG_REGION, Dma, Function, Irqs, MapArea, Mode, REGIONS, RegionInfo};
pub use interrupts::Interrupts;
pub use ringway_port::front_end::Observer;
pub use server::{Server, ServerSettings};
