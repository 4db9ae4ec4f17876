//! No view reaches outside its memory, and no copy is longer than it should be.

use proptest::prelude::*;

use crate::{Adjacent, Every, HEAD_BYTES, Head, Mapping, Stride};

const BYTES: usize = 8192;

fn near_the_ends() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..2 * BYTES,
        (0..300usize).prop_map(|n| usize::MAX - n),
        (0..300usize).prop_map(|n| (isize::MAX as usize).wrapping_sub(150).wrapping_add(n)),
        (0..300usize).prop_map(|n| BYTES - 150 + n),
    ]
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Returns memory that contains the pattern.
fn patterned() -> Mapping {
    let mapping = Mapping::private(BYTES).expect("memory");
    assert!(mapping.whole().write(&pattern(BYTES)));
    mapping
}

fn content(mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; mapping.bytes()];
    assert!(mapping.whole().read(&mut bytes));
    bytes
}

fn piece_is_inside(mapping: &Mapping, index: usize, size: usize, stride: impl Stride) -> Result<(), TestCaseError> {
    let distance = stride.bytes(size);
    let Some(pieces) = mapping.whole().pieces(size, stride) else {
        prop_assert!(size == 0 || distance == 0);
        return Ok(());
    };
    let end = index as u128 * distance as u128 + size as u128;
    prop_assert_eq!(pieces.get(index).is_some(), end <= BYTES as u128, "{} of {} at {}", index, size, distance);
    if let Some(piece) = pieces.get(index) {
        prop_assert_eq!((piece.as_ptr(), piece.len()), (pieces.address(index), size));
        prop_assert_eq!(piece.as_ptr() as usize, mapping.whole().as_ptr() as usize + index * distance);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_part_is_inside_or_not_there(
        offset in near_the_ends(), len in near_the_ends(), again in near_the_ends(), len_again in near_the_ends(),
    ) {
        let mapping = Mapping::private(BYTES).expect("memory");
        let start = mapping.whole().as_ptr() as usize;
        let inside = (offset as u128) + (len as u128) <= BYTES as u128;
        let part = mapping.view(offset, len);
        prop_assert_eq!(part.is_some(), inside);
        if let Some(part) = part {
            prop_assert_eq!(part.len(), len);
            prop_assert_eq!(part.as_ptr() as usize, start + offset);
            let inner = part.sub(again, len_again);
            prop_assert_eq!(inner.is_some(), again as u128 + len_again as u128 <= len as u128);
            if let Some(inner) = inner {
                prop_assert!(inner.as_ptr() as usize + inner.len() <= start + BYTES);
            }
        }
    }

    #[test]
    fn a_piece_is_inside_or_not_there(index in any::<u32>(), size in any::<u32>(), small in 0..200u32) {
        let mapping = Mapping::private(BYTES).expect("memory");
        for (index, size) in [(index, size), (small, size), (index, small), (small, small)] {
            let (index, size) = (index as usize, size as usize);
            piece_is_inside(&mapping, index, size, Adjacent)?;
            for distance in [0, 1, 64, size / 2] {
                piece_is_inside(&mapping, index, size, Every(distance))?;
            }
        }
    }

    #[test]
    fn words_are_aligned_and_all_inside(offset in 0..64usize, len in 0..64usize) {
        let mapping = Mapping::private(BYTES).expect("memory");
        let view = mapping.view(BYTES - 128 + offset, len).expect("inside");
        let aligned = |size: usize| offset % size == 0 && len % size == 0;
        prop_assert_eq!(view.words64().map(|words| words.len() * 8), aligned(8).then_some(len));
        prop_assert_eq!(view.words32().map(|words| words.len() * 4), aligned(4).then_some(len));
    }

    #[test]
    fn a_write_changes_its_bytes_and_no_other(offset in 64..512usize, len in 0..300usize, room in 0..300usize) {
        let mapping = patterned();
        let view = mapping.view(offset, room).expect("inside");
        let source = vec![0xff; len];
        let fits = len <= room;
        prop_assert_eq!(view.write(&source), fits);
        let mut expected = pattern(BYTES);
        if fits {
            expected[offset..offset + len].fill(0xff);
        }
        prop_assert_eq!(content(&mapping), expected);
    }

    #[test]
    fn the_head_of_a_frame_is_written_exactly(offset in 64..512usize, len in 0..200usize, room in 0..200usize) {
        let mapping = patterned();
        let done = mapping.view(offset, room).expect("inside").write_head(&Head([0xff; HEAD_BYTES]), len);
        let fits = len <= room && len <= HEAD_BYTES;
        prop_assert_eq!(done, fits);
        let mut expected = pattern(BYTES);
        if fits {
            expected[offset..offset + len].fill(0xff);
        }
        prop_assert_eq!(content(&mapping), expected);
    }

    #[test]
    fn a_copy_between_clients_is_exact(to in 0..512usize, from in 0..512usize, len in 0..2000usize, room in 0..2000usize) {
        let (target, source) = (patterned(), patterned());
        let taken = source.view(from, len).expect("inside");
        let fits = len <= room;
        prop_assert_eq!(target.view(to, room).expect("inside").copy_from(taken), fits);
        let mut expected = pattern(BYTES);
        if fits {
            expected[to..to + len].copy_from_slice(&pattern(BYTES)[from..from + len]);
        }
        prop_assert_eq!(content(&target), expected);
        prop_assert_eq!(content(&source), pattern(BYTES));
    }

    #[test]
    fn a_copy_within_one_clients_memory_may_overlap(to in 0..600usize, from in 0..600usize, len in 0..600usize) {
        let mapping = patterned();
        prop_assert!(mapping.view(to, len).expect("inside").copy_from(mapping.view(from, len).expect("inside")));
        let mut expected = pattern(BYTES);
        expected.copy_within(from..from + len, to);
        prop_assert_eq!(content(&mapping), expected);
    }

    /// Also at the very end of the memory, where the next byte would fault.
    #[test]
    fn a_head_is_the_first_bytes_of_the_view(room in 0..300usize, len in 0..400usize, at_end in any::<bool>()) {
        let mapping = patterned();
        let offset = if at_end { BYTES - room } else { 100 };
        let mut head = Head([0xee; HEAD_BYTES]);
        let got = mapping.view(offset, room).expect("inside").read_head(len, &mut head);
        prop_assert_eq!(got, len.min(HEAD_BYTES).min(room));
        prop_assert_eq!(&head.0[..got], &pattern(BYTES)[offset..offset + got]);
    }

    #[test]
    fn a_read_is_whole_or_not_done(room in 0..300usize, len in 0..300usize) {
        let mapping = patterned();
        let mut target = vec![0xee; len];
        let done = mapping.view(100, room).expect("inside").read(&mut target);
        prop_assert_eq!(done, len <= room);
        let expected = if done { pattern(BYTES)[100..100 + len].to_vec() } else { vec![0xee; len] };
        prop_assert_eq!(target, expected);
    }
}
