//! Frames of tests in a batch.

use ringway_memory::{HEAD_BYTES, Mapping};
use ringway_switch::{Batch, BatchStorage, Offload};

pub fn bytes_of(batch: &Batch<'_>, index: usize) -> Vec<u8> {
    let frame = batch.frame(index);
    let mut bytes = frame.head().0[..frame.head_len()].to_vec();
    for rest in frame.rest() {
        let mut part = vec![0; rest.len()];
        assert!(rest.read(&mut part));
        bytes.extend(part);
    }
    assert_eq!(bytes.len(), frame.len());
    bytes
}

/// Makes a batch of these frames. The bytes after the head of each are copied to `source`, in pieces of `piece` bytes.
pub fn fill_batch<'m>(source: &'m Mapping, frames: &[(Vec<u8>, Option<Offload>)], piece: usize) -> Batch<'m> {
    let (mut batch, mut at) = (BatchStorage::new(frames.len()).into_batch(), 0);
    for (bytes, offload) in frames {
        let (first, others) = bytes.split_at(bytes.len().min(HEAD_BYTES));
        let (head, rests) = batch.draft();
        head.0[..first.len()].copy_from_slice(first);
        for chunk in others.chunks(piece.max(1)) {
            let view = source.view(at, chunk.len()).expect("inside");
            assert!(view.write(chunk));
            rests.push(view);
            at += chunk.len();
        }
        batch.seal(first.len(), *offload);
    }
    batch
}

/// Allocates private memory for the bytes of these frames after their heads.
pub fn memory_for(frames: &[(Vec<u8>, Option<Offload>)]) -> Mapping {
    Mapping::private(frames.iter().map(|(bytes, _)| bytes.len()).sum::<usize>().max(1)).expect("memory")
}
