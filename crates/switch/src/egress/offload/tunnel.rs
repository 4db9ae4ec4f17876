//! Segmentation of a packet in a UDP tunnel: every segment gets the tunnel's headers.

use ringway_memory::{HEAD_BYTES, View};

use super::segment::{Cut, Tail, patch_ip, put, read, write};
use crate::batch::Batch;
use crate::frame::tunnel::MOST_HEADERS;
use crate::frame::{Accepts, Headers, Sum, Tunnel};

impl<'m> Cut<'_, 'm> {
    /// As [`Cut::segment`]. The headers are built apart, because they may be longer than a head.
    #[cold]
    pub(super) fn segment_in_tunnel<'x>(
        &mut self,
        outer: &Headers,
        tunnel: Tunnel,
        chunk: &mut Batch<'x>,
        tail: &'x mut Tail,
        accepts: Accepts,
    ) -> Option<bool>
    where
        'm: 'x,
    {
        let frame = self.frame;
        let bytes = self.size.min(frame.len().checked_sub(self.at)?);
        let judged = frame.first_bytes().get(self.at..).unwrap_or(&[]);
        let judged = judged.get(..bytes).unwrap_or(judged);
        let mut memory = [0; MOST_HEADERS];
        let built = memory.get_mut(..self.first + judged.len())?;
        let (headers, payload) = built.split_at_mut(self.first);
        if frame.read(headers) < headers.len() {
            return None;
        }
        payload.copy_from_slice(judged);

        let (last, far) = (self.at + bytes == frame.len(), bytes - judged.len());
        self.patch_transport(built, bytes, last)?;
        let partial = accepts.contains(Accepts::CSUM);
        let mut ahead = self.rest;
        let add_far = |sum: &mut Sum| ahead.take(frame.rest(), far, |view| sum.add_view(view));
        let inner = self.headers;
        let len = inner.end.checked_sub(inner.transport)? + bytes;
        let field = inner.transport + usize::from(self.offload.csum_offset);
        let mut pseudo = Sum::default();
        pseudo.add(&read::<2>(built, field)?);
        pseudo.replace(frame.len().checked_sub(inner.transport)?, len);
        self.patch_sum(built, add_far, len, partial)?;
        let end = self.first + bytes;
        patch_ip(built, (inner.ip, inner.v6, inner.transport), end.checked_sub(inner.ip)?, self.number)?;

        let udp_len = end.checked_sub(outer.transport)?;
        put(built, outer.transport + 4, udp_len)?;
        if tunnel.csum {
            let field = outer.transport + 6;
            let mut sum = Sum::default();
            sum.add(&read::<2>(built, field)?);
            sum.replace(frame.len().checked_sub(outer.transport)?, udp_len);
            write(built, field, &sum.field())?;
            // What a finished checksum covers sums up to the complement of its pseudo-header (Linux,
            // Documentation/networking/checksum-offloads.rst: local checksum offload).
            let mut sum = Sum::default();
            sum.add(built.get(outer.transport..inner.transport)?);
            sum.add(&pseudo.field().map(|byte| !byte));
            write(built, field, &sum.checksum())?;
        }
        patch_ip(built, (outer.ip, outer.v6, outer.transport), end.checked_sub(outer.ip)?, self.number)?;

        let (head, rests) = chunk.draft();
        let (near, beyond) = built.split_at(built.len().min(HEAD_BYTES));
        write(&mut head.0, 0, near)?;
        if !beyond.is_empty() {
            let tail = tail.get_mut(..beyond.len())?;
            tail.copy_from_slice(beyond);
            rests.push(View::private(tail));
        }
        self.rest.take(frame.rest(), far, |view| rests.push(view));
        chunk.seal(near.len(), partial.then(|| self.left_offload()));
        self.at += bytes;
        self.number = self.number.wrapping_add(1);
        Some(last)
    }
}
