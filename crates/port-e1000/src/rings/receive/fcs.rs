//! The frame check sequence (RCTL.SECRC; IEEE 802.3, 3.2.9), for drivers that want one; the 82540EM's driver always does.
//!
//! The sequence covers the bytes in the guest's buffers and the tag that was taken out. A sequence that a driver made itself
//! is taken off the frame.

use ringway_memory::View;

/// Bytes of a frame check sequence.
pub(super) const BYTES: usize = 4;
/// Bytes of both addresses. A removed tag was after them.
const ADDRESSES: usize = 12;
/// Bytes summed at a time.
const PART: usize = 512;

/// Computes the frame check sequence of a frame, the first `len` bytes of `views`. `tag` is the VLAN tag that was
/// removed from the frame and belongs to the sum.
pub(super) fn of<'v>(views: impl IntoIterator<Item = View<'v>>, len: usize, mut tag: Option<[u8; 4]>) -> [u8; BYTES] {
    let (mut sum, mut done) = (crc32fast::Hasher::new(), 0);
    let mut bytes = [0; PART];
    for view in views {
        let mut from = 0;
        while from < view.len() && done < len {
            let most = if tag.is_some() { ADDRESSES - done } else { PART };
            let part = &mut bytes[..most.min(len - done).min(view.len() - from)];
            let _ = view.sub(from, part.len()).is_some_and(|view| view.read(part));
            sum.update(part);
            (from, done) = (from + part.len(), done + part.len());
            if done == ADDRESSES
                && let Some(tag) = tag.take()
            {
                sum.update(&tag);
            }
        }
    }
    sum.finalize().to_le_bytes()
}

/// Writes the frame check sequence to the end of a frame in one buffer.
#[inline(never)]
pub(super) fn put(buffer: View<'_>) {
    let len = buffer.len().saturating_sub(BYTES);
    let sum = of([buffer], len, None);
    let _ = buffer.behind(len).is_some_and(|end| end.write(&sum));
}
