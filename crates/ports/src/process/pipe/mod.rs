//! Pipes: two ends, each with rings, and what one sends the other receives (netmap's `PORT{ID` and `PORT}ID`).
//!
//! A pipe drops nothing: a sender's slots come back when the receiver returns them, so that a slow receiver leaves the sender
//! without free ones. Ends in one region exchange buffers: the receiver's slot gets the sender's buffer number. Ends in two
//! regions each have buffers of their own, and the bytes are copied once.
//!
//! Each end is a port of a switch that has no other ports than the two ends. Its input moves the frames ([`PipeInput`]): the
//! poller of the sender moves what is sent, the poller of the receiver gives back what is returned.
//!
//! - `lane`: one direction of one ring pair. `state`: the ends, opened and closed in any order.
//! - `side`: an end's input and output.

mod lane;
mod side;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ringway_abi::netmap::PipeRole;

use super::region::{Region, RegionError, RegionPort};
use crate::port_io::PortIo;
use side::{PipeInput, PipeOutput};
pub use state::Pipe;

/// Opens an end of a pipe, which is not open, in a region. [`Pipe::close`] closes it, also after an error of the caller's own.
///
/// # Errors
/// The region has no room, its buffers have another size than those of the other end, the end is still being closed, or the kernel
/// has no descriptors left.
pub fn open_end(
    pipe: &Arc<Pipe>,
    role: PipeRole,
    region: &Arc<Region>,
    colour: u32,
) -> Result<(PortIo, Arc<RegionPort>), RegionError> {
    let (part, seen) = pipe.open(role, region, colour)?;
    let sides = || {
        let input = PipeInput::new(Arc::clone(pipe), role, Arc::clone(&part), seen)?;
        let (port, bell, signal) = RegionPort::new(part, colour, 0)?;
        let sides = PortIo { input: Box::new(input), output: Box::new(PipeOutput), bell, signal };
        Ok((sides, Arc::new(port)))
    };
    sides().inspect_err(|_| pipe.close(role, || ()))
}
