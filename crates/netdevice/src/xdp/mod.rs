//! AF_XDP (Linux, Documentation/networking/af_xdp.rst): sockets that share memory with the kernel.
//!
//! - `socket`: a socket, its memory, and the entries of its rings.
//! - `ring`: the rings.
//! - `program`: which frames come to the sockets.

mod program;
mod ring;
mod socket;

pub use program::{Attached, Host, Place, Sockets};
pub use ring::{Consumer, Producer, Queued};
pub use socket::{Entry, HAS_METADATA, METADATA, register, xdp_socket};
