//! One interface with its connections.
//!
//! | module | has |
//! |---|---|
//! | `core` | the state of an endpoint without its link, and [`Endpoint`] |
//! | `judge` | what a received frame changes |
//! | `receive` | [`Endpoint::poll`]: from the link to the program |
//! | `open` | how connections begin |
//! | `transmit` | from the program to the link |
//! | `trains`, `long` | the same for buffers of many messages, and for messages longer than a frame |
//! | `service`, `answer` | timers, acknowledgements and answers that are due |
//! | `end`, `lingering` | how connections end; answers to what comes after it |
//! | `audit` | checks for tests |
//! | `share`, `stations`, `reclaim` | how much one station may have, and what is taken back from slow ones |
//! | `table`, `timers`, `pool`, `free` | connections by identifier; deadlines; buffers |

mod answer;
mod audit;
mod core;
mod counters;
mod end;
mod event;
mod free;
mod judge;
mod lack;
mod lingering;
mod long;
mod open;
mod options;
mod peer;
mod pool;
mod receive;
mod reclaim;
mod service;
pub mod share;
mod stations;
mod table;
mod timers;
mod trains;
mod transmit;

pub use audit::Audit;
pub use core::{Endpoint, Status};
pub use counters::Counters;
pub use event::{Event, Reason};
pub use open::ConnectError;
pub use options::Options;
pub use peer::Connection;
pub use receive::Kept;
pub use transmit::{Outgoing, Refused, SendError};
