//! The device's side as the data path uses it.

use ringway_port::testing::{bytes_of, fill_batch, memory_for};
use ringway_switch::{Accepts, BatchStorage, Offload};

use super::{Driver, Guest};
use crate::virtqueue::{Bounce, Receive, Ring, RingFault, Tally, Transmit};

/// The result of a collect.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub frames: Vec<(Vec<u8>, Option<Offload>)>,
    /// Number of frames that were refused and counted.
    pub refused: usize,
}

pub fn transmit_queue<D: Driver>(guest: &Guest, driver: &D) -> Transmit<D::Device> {
    Transmit::new(driver.device(guest), 12, usize::MAX, Accepts::EVERYTHING)
}

pub fn receive_queue<D: Driver>(guest: &Guest, driver: &D, mergeable: bool) -> Receive<D::Device> {
    Receive::new(driver.device(guest), 12, mergeable)
}

/// Collects up to `limit` frames once, and releases them.
pub fn collect_some<R: Ring>(queue: &mut Transmit<R>, guest: &Guest, limit: usize) -> Result<Sent, RingFault> {
    thread_local!(static BOUNCE: std::cell::RefCell<Bounce> = std::cell::RefCell::default());
    BOUNCE.with_borrow_mut(|bounce| {
        bounce.begin().expect("memory");
        let mut batch = BatchStorage::new(limit).into_batch();
        let result = queue.collect(&guest.memory, bounce, &mut batch);
        let frames: Vec<_> =
            (0..batch.len()).map(|index| (bytes_of(&batch, index), batch.frame(index).offload().copied())).collect();
        // A batch with many pieces or bytes is full before `limit` frames; then the number of refused frames is
        // unknown.
        let pieces: usize = (0..batch.len()).map(|index| batch.frame(index).rest().len()).sum();
        let is_known = batch.bytes() < 1 << 20 && pieces <= 4 * limit;
        let refused = if is_known { limit - frames.len() - batch.room() } else { 0 };
        drop(batch);
        let released = queue.release(&guest.memory);
        result.and(released).map(|()| Sent { frames, refused })
    })
}

/// Collects and releases all available frames.
pub fn collect<R: Ring>(queue: &mut Transmit<R>, guest: &Guest) -> Result<Sent, RingFault> {
    let mut all = Sent::default();
    // A frame that needs a bounce buffer may wait once, so one empty collect does not mean that no frames are left.
    let mut empty = 0;
    while empty < 2 {
        let sent = collect_some(queue, guest, 256)?;
        empty = if sent.frames.is_empty() && sent.refused == 0 { empty + 1 } else { 0 };
        all.frames.extend(sent.frames);
        all.refused += sent.refused;
    }
    Ok(all)
}

/// Delivers frames. The bytes after the head of each are in pieces of `piece` bytes.
pub fn deliver<R: Ring>(
    queue: &mut Receive<R>,
    guest: &Guest,
    frames: &[(Vec<u8>, Option<Offload>)],
    piece: usize,
) -> (Result<(), RingFault>, Tally) {
    let source = memory_for(frames);
    let batch = fill_batch(&source, frames, piece);
    let mut tally = Tally::default();
    let result = queue.deliver(&guest.memory, (0..frames.len()).map(|index| batch.frame(index)), &mut tally);
    (result, tally)
}
