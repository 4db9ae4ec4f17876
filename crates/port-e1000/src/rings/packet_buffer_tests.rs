//! Frames come out of a packet buffer in order and unchanged.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_port::testing::{bytes_of, fill_batch, memory_for};
use ringway_switch::Offload;

use super::PacketBuffer;
use super::testing::{OffloadedFrame, frame};

/// Stores one frame, given in pieces.
fn put(buffer: &mut PacketBuffer, frame: &OffloadedFrame, piece: usize) -> bool {
    let frames = [frame.clone()];
    let source = memory_for(&frames);
    let batch = fill_batch(&source, &frames, piece);
    buffer.put(&batch.frame(0))
}

/// Takes up to `most` frames out of the buffer.
fn take(buffer: &mut PacketBuffer, most: usize) -> Vec<OffloadedFrame> {
    let mut all = Vec::new();
    buffer.drain(|batch| {
        let taken = batch.len().min(most - all.len());
        all.extend((0..taken).map(|index| (bytes_of(batch, index), batch.frame(index).offload().copied())));
        taken
    });
    all
}

fn sum_at(start: u16) -> Option<Offload> {
    Some(Offload { needs_csum: true, csum_start: start, csum_offset: 6, ..Offload::default() })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Stores and removes frames of any lengths. A frame is stored whenever two of the longest would fit, and never
    /// when less than its own length is free.
    #[test]
    fn frames_wait_in_order_and_whole(
        kib in 4..9usize, piece in 60..2000usize, sums in any::<bool>(),
        turns in vec((vec(14..1600usize, 0..20), 0..30usize), 1..30)
    ) {
        let bytes = kib << 10;
        let mut buffer = PacketBuffer::new(bytes).expect("memory");
        let mut model: VecDeque<OffloadedFrame> = VecDeque::new();
        for (seed, (lengths, most)) in turns.into_iter().enumerate() {
            for len in lengths {
                let new = (frame(len, seed), sum_at(len as u16 - 14).filter(|_| sums && len >= 64));
                let used: usize = model.iter().map(|(frame, _)| frame.len().next_multiple_of(64)).sum();
                let (free, of) = buffer.room(len);
                let is_in = put(&mut buffer, &new, piece);
                prop_assert!(is_in || used + 2 * 1600 > bytes, "{used} of {bytes} bytes are used, and {len} found no room");
                prop_assert!(!is_in || used + len <= bytes && free > 0);
                prop_assert!(free <= of && (used > 0 || free == of));
                if is_in {
                    model.push_back(new);
                }
            }
            let came = take(&mut buffer, most);
            prop_assert_eq!(came.len(), most.min(model.len()));
            for came in came {
                prop_assert_eq!(Some(came), model.pop_front());
            }
            prop_assert_eq!(buffer.is_empty(), model.is_empty());
        }
    }
}

#[test]
fn a_buffer_is_full_to_its_last_unit_and_empty_when_it_was_cleared() {
    let mut buffer = PacketBuffer::new(4096).expect("memory");
    for turn in 0..3 {
        assert_eq!(buffer.room(60), (64, 64));
        assert_eq!((0..100).filter(|&seed| put(&mut buffer, &(frame(60, seed), None), 60)).count(), 64);
        assert_eq!(buffer.room(60), (0, 64));
        // The free memory wraps around the end of the buffer.
        assert_eq!(take(&mut buffer, 10 * turn).len(), 10 * turn);
        assert_eq!(buffer.room(60).0, 10 * turn);
        assert_eq!((0..100).filter(|&seed| put(&mut buffer, &(frame(64, seed), None), 60)).count(), 10 * turn);
        buffer.clear();
        assert!(buffer.is_empty() && take(&mut buffer, 1).is_empty());
    }
    assert!(!put(&mut buffer, &(frame(4097, 1), None), 500), "a frame that is longer than the whole buffer");
}
