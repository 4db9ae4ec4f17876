//! Calls: the switch wakes a client by the client's eventfd, and never waits for the client.
//!
//! A client shares its eventfd with the switch. The client may make the eventfd blocking and fill its counter at any
//! time, so that write(2) would block without bound; no check before the write helps. Therefore the kernel adds to the
//! counter itself (`aio`), which never waits whatever the descriptor's flags and counter are. Where the kernel
//! offers no way to ask for that, the thread writes, and a timer of its own interrupts a write that lasts
//! (`timed_write`).
//!
//! Adding to the counter wakes every waiter of the eventfd before it returns, and a client may register very many (epoll). A
//! client whose calls cost too much processor time is reported like one that makes a call wait: the port ends with `call_blocked`. Where
//! that is not certain, it is called less often (`account`).
//! `docs/decisions/calls.md` has the measurements.

mod account;
mod aio;
mod caller;
mod interrupt;
#[cfg(test)]
mod tests;
mod timed_write;

pub use account::CallAccount;
pub use caller::{Called, call, prepare};
pub use caller::{made, send_counted, slow_nanoseconds};
pub use interrupt::interrupt;
