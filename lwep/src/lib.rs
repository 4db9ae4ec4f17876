//! LWEP: reliable messages between programs, by memory and Ethernet frames alone (VPE §3.1, §4.7).
//!
//! An [`Endpoint`] is one network interface ([`Link`]) that this program owns, with any number of connections. A message
//! is sent in one Ethernet frame, arrives once, whole and in order, and is acknowledged. `docs/lwep.md` is the protocol.
//!
//! Nothing here has a thread, waits, or reads a clock: the program calls [`Endpoint::poll`] with the time, in nanoseconds of any clock
//! that does not run backwards. In the steady state nothing is allocated.
//!
//! ```
//! use ringway_link::memory::{MemoryOptions, pair};
//! use ringway_lwep::{Endpoint, Event, Options};
//!
//! let (left, right) = pair(&MemoryOptions::default())?;
//! let mut client = Endpoint::new(left, Options::default());
//! let mut server = Endpoint::new(right, Options::default());
//! server.listen(7);
//! let connection = client.connect(server.mac(), 7, 0)?;
//! client.send(connection, b"hello", 0)?;
//! let mut heard = Vec::new();
//! for now in 0..10 {
//!     while client.poll(now).is_some() {}
//!     while let Some(event) = server.poll(now) {
//!         if let Event::Message { data, .. } = event {
//!             heard.extend_from_slice(data);
//!         }
//!     }
//! }
//! assert_eq!(heard, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | wanted | use |
//! |---|---|
//! | write a message in place | [`Endpoint::reserve`], [`Endpoint::commit`] |
//! | read a message in place | [`Event::Message`] |
//! | keep a message without copying it | [`Endpoint::keep`], [`Endpoint::give_back`] |
//! | take no further messages of one connection for a while | [`Endpoint::pause`], [`Endpoint::resume`] |
//! | many messages from one buffer, by segmentation hardware | [`Endpoint::reserve_many`], [`Endpoint::commit_many`] |
//! | messages longer than a frame | [`Options::long`], [`Endpoint::send_long`] |
//! | sleep | [`Endpoint::sleep`]; in an own event loop [`Endpoint::prepare_sleep`] |

#![forbid(unsafe_code)]

mod connection;
mod endpoint;
pub mod link;
pub mod wire;

pub use connection::Nanos;
pub use endpoint::share;
pub use endpoint::{
    Audit, ConnectError, Connection, Counters, Endpoint, Event, Kept, Options, Outgoing, Reason, Refused, SendError,
    Status,
};
pub use link::Link;
