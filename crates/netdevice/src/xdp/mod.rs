//! AF_XDP (Linux, Documentation/networking/af_xdp.rst): sockets that share memory with the kernel.
//!
//! - `mode`: how frames get from a device to a socket.
//! - `socket`: a socket, its memory, and the entries of its rings.
//! - `ring`: the rings.
//! - `program`: which frames come to the sockets.

mod mode;
mod program;
mod ring;
mod socket;

pub use mode::{Freed, Mode, Transfer, help, other_program};
pub use program::{Attached, Host, Place, Sockets};
pub use ring::{Consumer, Producer, Queued};
pub use socket::{Entry, HAS_METADATA, METADATA, frames_of_a_call, register, xdp_socket};
