//! Ports in memory: frames that are offered, and an output that keeps what it is given.

use std::sync::{Arc, Mutex};

use ringway_memory::{Mapping, View};
use ringway_switch::{
    Accepts, Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, Frames, Input, Offload, Output,
    OutputCapabilities, PortFault, WakeOn,
};

/// A frame with its offload.
pub type Frame = (Vec<u8>, Option<Offload>);

/// Offers frames, each in pieces.
pub struct Offer {
    memory: Mapping,
    /// The places of each frame's pieces, and its offload.
    frames: Vec<(Vec<(usize, usize)>, Option<Offload>)>,
}

impl Offer {
    /// Offers each frame in pieces of `step(frame)` bytes.
    pub fn new(frames: &[Frame], step: impl Fn(usize) -> usize) -> Offer {
        let bytes = frames.iter().map(|(bytes, _)| bytes.len()).sum::<usize>();
        let memory = Mapping::private(bytes.max(1)).expect("memory");
        let mut at = 0;
        let mut offered = Vec::new();
        for (number, (bytes, offload)) in frames.iter().enumerate() {
            assert!(bytes.is_empty() || memory.view(at, bytes.len()).expect("inside").write(bytes));
            let step = step(number).max(1);
            let pieces = (0..bytes.len()).step_by(step).map(|from| (at + from, step.min(bytes.len() - from)));
            offered.push((pieces.collect(), *offload));
            at += bytes.len();
        }
        Offer { memory, frames: offered }
    }
}

impl Input for Offer {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let Self { memory, frames } = self;
        let view = |&(at, len): &(usize, usize)| -> View<'m> { memory.view(at, len).expect("inside") };
        for (pieces, offload) in frames.iter() {
            match (pieces.as_slice(), *offload) {
                ([whole], Some(offload)) => batch.push_offloaded(view(whole), whole.1, offload),
                ([whole], None) => batch.push(view(whole), whole.1),
                (pieces, Some(offload)) => batch.push_pieces_offloaded(pieces.iter().map(view), offload),
                (pieces, None) => batch.push_pieces(pieces.iter().map(view)),
            }
        }
        Ok(())
    }

    fn discard(&mut self, _most: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn release(&mut self) {}

    fn pending(&mut self) -> bool {
        false
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::Kick
    }

    fn disarm(&mut self) {}
}

/// Keeps what it is given.
pub struct Sink {
    pub accepts: Accepts,
    pub kept: Arc<Mutex<Vec<Frame>>>,
}

impl Output for Sink {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: self.accepts, ..OutputCapabilities::default() }
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        for frame in frames {
            let mut bytes = frame.head().0[..frame.head_len()].to_vec();
            for rest in frame.rest() {
                let at = bytes.len();
                bytes.resize(at + rest.len(), 0);
                assert!(rest.read(&mut bytes[at..]));
            }
            assert_eq!(bytes.len(), frame.len());
            counters.add_out(1, frame.len() as u64);
            self.kept.lock().expect("one thread").push((bytes, frame.offload().copied()));
        }
        Ok(())
    }
}

/// A client that is never called.
pub struct Silent;

impl Bell for Silent {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}
