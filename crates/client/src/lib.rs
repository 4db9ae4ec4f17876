//! Attach a process port to a Ringway switch: send and receive batches of frames through shared memory.
//!
//! A port is attached by the name `SWITCH:PORT` through the daemon's `attach.sock`. Switch and port are created on demand
//! where the configuration allows that, and the port goes when the [`Port`] is dropped or the process ends. While both sides
//! are busy no system call is made: frames and ring indices move through memory, and each side wakes the other only on
//! request.
//!
//! ```no_run
//! use std::time::Duration;
//! use ringway_client::{Port, Shape};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut port = Port::attach("/run/ringway/attach.sock", "lan0:probe", Shape::default())?;
//!
//! // Send a batch: queue frames, then publish them all at once.
//! let mut frame = [0u8; 60];
//! frame[..6].fill(0xff);
//! frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
//! while port.tx().push(&frame) {}
//! port.flush();
//!
//! // Receive a batch, sleeping until there is one.
//! if port.wait_rx(Duration::from_secs(1))? {
//!     let taken = port.rx().drain(64, |frame| println!("{} bytes", frame.len()));
//!     println!("{taken} frames");
//! }
//! # Ok(()) }
//! ```
//!
//! [`TxRing::reserve`] and [`RxRing::peek`] give the buffers of many slots at once, to be used in place and handed over by
//! [`TxRing::commit`] and [`RxRing::release`].
//!
//! With [`Shape::offload`] frames may leave a checksum or segmentation undone, in both directions: see
//! [`TxRing::push_offloaded`] and [`RxRing::drain_offloaded`].

mod attach;
mod batch;
mod end;
mod error;
mod external;
mod memory;
mod port;
mod rx;
mod sleep;
mod tx;

pub use batch::{Peeked, Piece, Received, Reserved, Run};
pub use error::AttachError;
pub use external::{Area, ExternalMemory};
pub use port::Port;
pub use ringway_abi::layout::MAX_SLOTS;
pub use ringway_abi::offload::{Gso, Offload};
pub use ringway_abi::{Layout, Shape};
pub use ringway_memory::{Buffer, prefetch_read, prefetch_write};
pub use rx::{NotExchanged, RxRing};
pub use tx::TxRing;
