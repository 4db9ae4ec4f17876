//! Ports in memory, for the examples that measure.

use ringway_memory::Mapping;
use ringway_switch::{Armed, Batch, Bell, CallReason, CallResult, Discarded, Input, PortFault, WakeOn};

/// Frames of a batch.
pub const FRAMES: usize = 256;

/// An input that offers the same frames in every batch.
pub struct Offer {
    memory: Mapping,
    stride: usize,
    len: usize,
}

impl Offer {
    /// Offers the frames that `frame` makes of their numbers. All have the length of the first.
    pub fn new(stride: usize, frame: impl Fn(usize) -> Vec<u8>) -> Offer {
        let memory = Mapping::private(FRAMES * stride).expect("memory");
        let len = frame(0).len();
        for number in 0..FRAMES {
            assert!(memory.view(number * stride, len).is_some_and(|view| view.write(&frame(number))));
        }
        Offer { memory, stride, len }
    }
}

impl Input for Offer {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        for number in 0..FRAMES {
            let Some(view) = self.memory.view(number * self.stride, self.len) else { break };
            batch.push(view, self.len);
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn pending(&mut self) -> bool {
        true
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::Pending
    }

    fn disarm(&mut self) {}
}

/// A client that wants no calls.
pub struct Silent;

impl Bell for Silent {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}
