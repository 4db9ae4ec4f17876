//! Copies of frames into a client's memory, a row of frames at a time.
//!
//! A store to a cache line that the client's core has read waits until that core has given the line up. All later stores wait
//! behind that store in the store queue. Only waits that are in the store queue at the same time overlap. A row is therefore
//! written in three steps:
//!
//! 1. Find the buffers of the whole row.
//! 2. Make the first stores to each cache line close together, so that as many waits overlap as the store queue holds.
//! 3. Write everything else.
//!
//! A short frame is two wide stores and has no third step, where the processor has stores of 32 bytes (`ringway_memory`,
//! `row.rs`). Figures and rejected variants are in `docs/decisions/rows.md`.

use ringway_memory::{HEAD_BYTES, Head, View, with_non_temporal, write_heads};
use ringway_switch::Frame;

/// Most frames in one row. A full row makes 128 first stores, two a frame: twice the capacity of a store queue of 64
/// entries. Rows of 32 frames are slower by a tenth; rows of 128 are no faster.
pub const ROW: usize = 64;

/// Up to this many frames take a short row: clearing a row of [`ROW`] entries takes longer than filling it with so few.
pub const FEW: usize = 4;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Calls `line`, a prefetch, with the addresses of the first two cache lines of a buffer. A header and a small frame
/// take no more.
#[inline(always)]
pub fn prefetch(buffer: View<'_>, line: impl Fn(*mut u8)) {
    line(buffer.as_ptr());
    if buffer.len() > LINE {
        line(buffer.as_ptr().wrapping_add(LINE));
    }
}

/// Stores the first and the last 16 bytes of a frame's head, mostly to the only two cache lines that the frame takes.
/// The caller has checked that the frame fits in `room`.
#[inline(always)]
pub fn touch(room: View<'_>, frame: &Frame<'_, '_>) {
    let head = &frame.head().0[..frame.head_len().min(HEAD_BYTES)];
    if let (Some(first), Some(last)) = (head.first_chunk(), head.last_chunk()) {
        room.put::<16>(0, first);
        room.put::<16>(head.len() - 16, last);
    }
}

/// Writes a row of short frames (frames without bytes beyond their heads), each after the first `SKIP` bytes of its
/// buffer. The caller has checked that each buffer is long enough.
#[inline(always)]
pub fn write_short_row<const SKIP: usize>(buffers: &[View<'_>], heads: &[&Head]) {
    if !write_heads::<SKIP>(buffers, heads) {
        let rooms = || buffers.iter().zip(heads).filter_map(|(buffer, head)| Some((buffer.behind(SKIP)?, *head)));
        rooms().for_each(|(room, head)| room.write_ends(head));
        rooms().for_each(|(room, head)| _ = room.write_head(head, room.len()));
    }
}

/// Writes a frame to `room`. The caller has checked that the frame fits.
#[inline(always)]
pub fn write(room: View<'_>, frame: &Frame<'_, '_>) {
    if frame.is_short() {
        let _ = room.write_head(frame.head(), frame.len());
    } else {
        let _ = room.write_head(frame.head(), frame.head_len());
        write_rest(room, frame.head_len(), frame.rest());
    }
}

/// Writes a row of frames for which [`Frame::has_waited`] is true, each after the first `SKIP` bytes of its buffer.
/// The caller has checked that each buffer is long enough. Neither the frames nor the buffers are in this core's
/// caches: the receiver read the buffers long ago. The copy bypasses the caches, so that buffers are not loaded first.
#[inline(never)]
pub fn write_waited_row<'b, 'm: 'b, const SKIP: usize>(
    buffers: &[View<'_>],
    frames: impl Iterator<Item = Frame<'b, 'm>>,
) {
    with_non_temporal(|past| {
        for (room, frame) in
            buffers.iter().zip(frames).filter_map(|(buffer, frame)| Some((buffer.behind(SKIP)?, frame)))
        {
            let mut offset = frame.head_len();
            let _ = past.write(room, &frame.head().0[..offset]);
            for rest in frame.rest() {
                let _ = room.sub(offset, rest.len()).is_some_and(|to| past.copy(to, *rest));
                offset += rest.len();
            }
        }
    });
}

/// Writes the bytes of a frame that follow its head, from `offset` on.
#[inline]
fn write_rest(room: View<'_>, mut offset: usize, rest: &[View<'_>]) {
    for rest in rest {
        let _ = room.sub(offset, rest.len()).is_some_and(|to| to.copy_from(*rest));
        offset += rest.len();
    }
}

/// The bytes of a frame that remain to be copied.
pub struct Source<'f, 'm> {
    head: &'f [u8],
    rest: &'f [View<'m>],
    /// Bytes of the first view in `rest` that are copied already.
    offset: usize,
}

impl<'f, 'm> Source<'f, 'm> {
    /// Starts at the first byte of the frame.
    pub fn new(frame: &Frame<'f, 'm>) -> Source<'f, 'm> {
        Source::with_head(&frame.head().0[..frame.head_len()], frame)
    }

    /// Starts at the first byte of `head`, which replaces the frame's own head.
    pub fn with_head(head: &'f [u8], frame: &Frame<'f, 'm>) -> Source<'f, 'm> {
        Source { head, rest: frame.rest(), offset: 0 }
    }

    /// Returns true when the whole frame is copied.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.rest.is_empty()
    }

    /// Copies as many of the remaining bytes as fit into `room`. Returns their number.
    pub fn fill(&mut self, room: View<'_>) -> usize {
        let (head, left) = self.head.split_at(self.head.len().min(room.len()));
        let _ = room.write(head);
        self.head = left;
        let mut done = head.len();
        while let (true, Some((first, others))) = (done < room.len(), self.rest.split_first()) {
            let part = (first.len() - self.offset).min(room.len() - done);
            if let (Some(to), Some(from)) = (room.sub(done, part), first.sub(self.offset, part)) {
                let _ = to.copy_from(from);
            }
            (done, self.offset) = (done + part, self.offset + part);
            if self.offset == first.len() {
                (self.rest, self.offset) = (others, 0);
            }
        }
        done
    }
}
