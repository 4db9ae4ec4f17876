//! Where a program wants its frames and writes its verdicts.

use crate::limits::{CAPACITY_MAX, DESCRIPTOR, HEAD_MAX, VERDICT};

/// The arrays of a program: offsets in its memory. All lie within the memory, which never shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The descriptors. `None`: the program wants none.
    pub(crate) frames: Option<usize>,
    /// The heads.
    pub(crate) heads: usize,
    /// Bytes of each head.
    pub(crate) head_bytes: usize,
    /// The verdicts.
    pub(crate) verdicts: usize,
    /// Most frames of a call.
    pub(crate) capacity: usize,
}

impl Layout {
    /// Checks the arguments of `frames_at`, for a memory of this size.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check(
        frames: u32,
        heads: u32,
        head_bytes: u32,
        verdicts: u32,
        capacity: u32,
        memory: usize,
    ) -> Result<Layout, String> {
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return Err(format!("frames_at: the capacity is {capacity}: give 1 to {CAPACITY_MAX}"));
        }
        if head_bytes > HEAD_MAX {
            return Err(format!("frames_at: head_bytes is {head_bytes}: give 0 to {HEAD_MAX}"));
        }
        for (name, at) in [("frames", frames), ("verdicts", verdicts)] {
            if at % 4 != 0 {
                return Err(format!("frames_at: {name} is at {at}: give a multiple of 4"));
            }
        }
        let [frames, heads, head_bytes, verdicts, capacity] =
            [frames, heads, head_bytes, verdicts, capacity].map(|number| number as usize);
        let mut arrays = vec![("verdicts", verdicts, capacity * VERDICT)];
        if frames != 0 {
            arrays.push(("frames", frames, capacity * DESCRIPTOR));
        }
        if head_bytes != 0 {
            arrays.push(("heads", heads, capacity * head_bytes));
        }
        for (name, at, bytes) in &arrays {
            if at + bytes > memory {
                return Err(format!("frames_at: {name} is at {at} and takes {bytes} bytes: the memory has {memory}"));
            }
        }
        arrays.sort_by_key(|(_, at, _)| *at);
        for pair in arrays.windows(2) {
            if pair[0].1 + pair[0].2 > pair[1].1 {
                return Err(format!("frames_at: {} and {} overlap", pair[0].0, pair[1].0));
            }
        }
        Ok(Layout { frames: (frames != 0).then_some(frames), heads, head_bytes, verdicts, capacity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_that_overlap_or_leave_the_memory_are_refused_by_name() {
        let refused = |[frames, heads, bytes, verdicts, capacity]: [u32; 5]| {
            Layout::check(frames, heads, bytes, verdicts, capacity, 65_536).expect_err("refused")
        };
        for (arguments, what) in [
            ([0, 0, 0, 64, 0], "frames_at: the capacity is 0: give 1 to 1024"),
            ([0, 0, 0, 64, 1025], "frames_at: the capacity is 1025: give 1 to 1024"),
            ([0, 0, 129, 64, 1], "frames_at: head_bytes is 129: give 0 to 128"),
            ([2, 0, 0, 64, 1], "frames_at: frames is at 2: give a multiple of 4"),
            ([0, 0, 0, 65_534, 1], "frames_at: verdicts is at 65534: give a multiple of 4"),
            ([0, 0, 0, 65_536, 1], "frames_at: verdicts is at 65536 and takes 4 bytes: the memory has 65536"),
            (
                [0, u32::MAX, 128, 64, 1024],
                "frames_at: heads is at 4294967295 and takes 131072 bytes: the memory has 65536",
            ),
            ([64, 0, 0, 72, 1], "frames_at: frames and verdicts overlap"),
            ([0, 60, 16, 64, 1], "frames_at: heads and verdicts overlap"),
        ] {
            assert_eq!(refused(arguments), what);
        }
        assert_eq!(
            Layout::check(64, 80, 16, 96, 1, 100),
            Ok(Layout { frames: Some(64), heads: 80, head_bytes: 16, verdicts: 96, capacity: 1 })
        );
    }
}
