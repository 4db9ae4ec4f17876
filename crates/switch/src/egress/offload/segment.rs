//! Segmentation and fragmentation of a frame.

use std::hash::{BuildHasher, RandomState};

use ringway_memory::{HEAD_BYTES, View};

use crate::batch::{Batch, Cursor, Frame};
use crate::frame::headers::{self, FRAGMENT_BYTES, IPV4_BYTES, IPV6_BYTES, SegmentableHeaders};
use crate::frame::tunnel::{self, MOST_HEADERS};
use crate::frame::{Accepts, Gso, Headers, Offload, Sum, Tunnel};

const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 0x80;
const MORE_FRAGMENTS: usize = 0x2000;
const FRAGMENT: u8 = 44;
/// Most bytes of headers that do not fit into a head: those of a frame in a tunnel. Of the first IPv6 fragment, whose headers are longer than the
/// frame's, there are fewer.
pub(super) const TAIL_BYTES: usize = MOST_HEADERS - HEAD_BYTES;
const _: () = assert!(TAIL_BYTES >= FRAGMENT_BYTES);

/// Private memory for a few bytes of a frame.
pub(super) type Tail = [u8; TAIL_BYTES];

/// Identifications for IPv6 fragments, one for each datagram (RFC 8200, 4.5).
#[derive(Debug)]
pub(super) struct FragmentNumbers(u32);

impl FragmentNumbers {
    pub(super) fn new() -> Self {
        Self(RandomState::new().hash_one(0) as u32)
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }
}

/// A frame that is being segmented or fragmented.
#[derive(Debug)]
pub(super) struct Cut<'b, 'm> {
    pub(super) frame: Frame<'b, 'm>,
    pub(super) offload: Offload,
    pub(super) headers: SegmentableHeaders,
    /// The headers of the tunnel around each segment.
    pub(super) tunnel: Option<(Headers, Tunnel)>,
    /// Offset in the frame of the first segment's payload.
    pub(super) first: usize,
    /// Offset in the frame of the next segment's payload.
    pub(super) at: usize,
    pub(super) size: usize,
    pub(super) number: u16,
    pub(super) rest: Cursor,
    /// For fragmentation: the checksum of the datagram.
    checksum: [u8; 2],
    /// For fragmentation: the identification of the datagram.
    fragment: u32,
}

impl<'b, 'm> Cut<'b, 'm> {
    /// Begins with a frame that was admitted with this offload. Returns `None` if the frame cannot be segmented;
    /// admission rejects such frames before.
    pub(super) fn new(frame: Frame<'b, 'm>, offload: Offload, numbers: &mut FragmentNumbers) -> Option<Self> {
        let (tunnel, headers) = match offload.tunnel {
            None => (None, SegmentableHeaders::find(frame.first_bytes())?),
            Some(tunnel) => {
                let mut head = [0; MOST_HEADERS];
                let there = frame.read(&mut head);
                let (outer, inner) = tunnel::find(&head[..there], &offload, tunnel)?;
                (Some((outer, tunnel)), inner)
            }
        };
        let (first, size) = headers::cut(&headers, &offload);
        if size == 0 || first > frame.len() {
            return None;
        }
        let (mut checksum, mut fragment) = ([0; 2], 0);
        if offload.gso == Gso::Udp4Frag {
            (checksum, fragment) = (frame.sum_from(headers.transport).checksum(), numbers.next());
        }
        let mut rest = Cursor::default();
        rest.take(frame.rest(), first.saturating_sub(frame.head_len()), drop);
        Some(Self { frame, offload, headers, tunnel, first, at: first, size, number: 0, rest, checksum, fragment })
    }

    /// Adds the next segment of a frame that is in no tunnel to `chunk`, without a checksum if the receiver accepts that. Returns true after the last
    /// segment. Returns `None`, and adds nothing, if the headers do not fit into a head; admission rejects such frames
    /// before.
    ///
    /// Every access to a head is checked, because the offsets depend on the frame.
    pub(super) fn segment<'x>(&mut self, chunk: &mut Batch<'x>, tail: &'x mut Tail, accepts: Accepts) -> Option<bool>
    where
        'm: 'x,
    {
        let (frame, is_fragment) = (self.frame, self.offload.gso == Gso::Udp4Frag);
        let bytes = self.size.min(frame.len().checked_sub(self.at)?);
        let (head, rests) = chunk.draft();
        let head = &mut head.0;
        head.get_mut(..self.first)?.copy_from_slice(frame.first_bytes().get(..self.first)?);
        let base = self.first + if is_fragment && self.headers.v6 { FRAGMENT_BYTES } else { 0 };

        // Bytes of the frame's head come from the private copy. The others stay in the sender's memory.
        let judged = frame.first_bytes().get(self.at..).unwrap_or(&[]);
        let judged = judged.get(..bytes).unwrap_or(judged);
        let (near, far) = judged.split_at(judged.len().min(HEAD_BYTES.checked_sub(base)?));
        let head_len = base + near.len();
        write(head, base, near)?;
        let mark = rests.len();
        if !far.is_empty() {
            let far_bytes = tail.get_mut(..far.len())?;
            far_bytes.copy_from_slice(far);
            rests.push(View::private(far_bytes));
        }
        self.rest.take(frame.rest(), bytes - judged.len(), |view| rests.push(view));

        let last = self.at + bytes == frame.len();
        let mut offload = None;
        if is_fragment {
            self.patch_fragment(head, base, last)?;
        } else {
            self.patch_transport(head, bytes, last)?;
            let partial = accepts.contains(Accepts::CSUM);
            let len = self.headers.end.checked_sub(self.headers.transport)? + bytes;
            let payload = |sum: &mut Sum| rests[mark..].iter().for_each(|&view| sum.add_view(view));
            self.patch_sum(head.get_mut(..head_len)?, payload, len, partial)?;
            offload = partial.then(|| self.left_offload());
        }
        let SegmentableHeaders { ip, v6, transport, .. } = self.headers;
        let number = if is_fragment { 0 } else { self.number };
        patch_ip(head, (ip, v6, transport), (base + bytes).checked_sub(ip)?, number)?;
        chunk.seal(head_len, offload);
        self.at += bytes;
        self.number = self.number.wrapping_add(1);
        Some(last)
    }

    /// What is left to do for a segment that a receiver takes without its checksum.
    pub(super) fn left_offload(&self) -> Offload {
        Offload { gso: Gso::None, ecn: false, hdr_len: 0, gso_size: 0, tunnel: None, ..self.offload }
    }

    /// Updates the TCP or UDP header of a segment with `bytes` bytes of payload.
    pub(super) fn patch_transport(&self, head: &mut [u8], bytes: usize, last: bool) -> Option<()> {
        let SegmentableHeaders { transport, end, .. } = self.headers;
        if self.offload.gso == Gso::UdpL4 {
            return put(head, transport + 4, end.checked_sub(transport)? + bytes);
        }
        let number = u32::from_be_bytes(read(head, transport + 4)?);
        let sent = self.at.checked_sub(self.first)? as u32;
        write(head, transport + 4, &number.wrapping_add(sent).to_be_bytes())?;
        let flags = head.get_mut(transport + 13)?;
        if !last {
            *flags &= !(FIN | PSH);
        }
        if self.number > 0 {
            *flags &= !CWR;
        }
        Some(())
    }

    /// Updates the checksum of a segment whose transport header and payload have `len` bytes. `payload` adds the payload behind `head`. The frame's checksum
    /// field holds the sum of its pseudo header (virtio 1.3, 5.1.6.2). The segment's pseudo header differs in its
    /// length only.
    pub(super) fn patch_sum(
        &self,
        head: &mut [u8],
        payload: impl FnOnce(&mut Sum),
        len: usize,
        partial: bool,
    ) -> Option<()> {
        let transport = self.headers.transport;
        let field = transport + usize::from(self.offload.csum_offset);
        let mut sum = Sum::default();
        sum.add(&read::<2>(head, field)?);
        sum.replace(self.frame.len().checked_sub(transport)?, len);
        write(head, field, &sum.field())?;
        if !partial {
            let mut sum = Sum::default();
            sum.add(head.get(transport..)?);
            payload(&mut sum);
            write(head, field, &sum.checksum())?;
        }
        Some(())
    }

    /// Writes the fragment offset and flags: into the IPv4 header (RFC 791, 3.2), or as an IPv6 fragment header (RFC
    /// 8200, 4.5).
    fn patch_fragment(&self, head: &mut [u8], base: usize, last: bool) -> Option<()> {
        let SegmentableHeaders { ip, v6, transport, protocol, next_header, .. } = self.headers;
        let offset = self.at.checked_sub(self.first)?;
        if v6 {
            *head.get_mut(next_header)? = FRAGMENT;
            let [a, b] = (offset as u16 | u16::from(!last)).to_be_bytes();
            let [c, d, e, f] = self.fragment.to_be_bytes();
            write(head, transport, &[protocol, 0, a, b, c, d, e, f])?;
        } else {
            put(head, ip + 6, (offset / 8) | if last { 0 } else { MORE_FRAGMENTS })?;
            if offset > 0 {
                blank_options(head.get_mut(ip + IPV4_BYTES..transport)?);
            }
        }
        if offset == 0 {
            write(head, base + usize::from(self.offload.csum_offset), &self.checksum)?;
        }
        Some(())
    }
}

/// Updates an IP header of a segment: where it begins, whether it is of IPv6, and where it ends. `len` counts from its beginning.
pub(super) fn patch_ip(head: &mut [u8], (ip, v6, end): (usize, bool, usize), len: usize, segment: u16) -> Option<()> {
    if v6 {
        return put(head, ip + 4, len.checked_sub(IPV6_BYTES)?);
    }
    put(head, ip + 2, len)?;
    let number: [u8; 2] = read(head, ip + 4)?;
    put(head, ip + 4, u16::from_be_bytes(number).wrapping_add(segment).into())?;
    put(head, ip + 10, 0)?;
    let mut sum = Sum::default();
    sum.add(head.get(ip..end)?);
    write(head, ip + 10, &sum.checksum())
}

/// Reads bytes of a head, if it has them.
pub(super) fn read<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..)?.first_chunk().copied()
}

/// Writes bytes of a head, if it has them.
pub(super) fn write(head: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    head.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    Some(())
}

/// Writes a 16-bit number in network byte order.
pub(super) fn put(head: &mut [u8], at: usize, number: usize) -> Option<()> {
    write(head, at, &(number as u16).to_be_bytes())
}

/// Replaces the IPv4 options that only the first fragment carries with no-operations (RFC 791, 3.1).
fn blank_options(mut options: &mut [u8]) {
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    loop {
        let len = match options {
            [] | [0, ..] => return,
            [NO_OPERATION, ..] => 1,
            [_, len, ..] if *len >= 2 => usize::from(*len),
            _ => return,
        };
        let Some((option, others)) = options.split_at_mut_checked(len) else { return };
        if option.first().is_some_and(|kind| kind & COPIED == 0) {
            option.fill(NO_OPERATION);
        }
        options = others;
    }
}
