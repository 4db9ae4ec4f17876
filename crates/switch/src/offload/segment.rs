//! One frame, cut into segments or fragments.

use std::hash::{BuildHasher, RandomState};

use ringway_memory::{HEAD_BYTES, Head, View};

use super::headers::{self, Headers, IPV6_BYTES};
use super::sum::Sum;
use super::{Accepts, Gso, Offload};
use crate::batch::{Batch, Frame};

const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 0x80;
const MORE_FRAGMENTS: usize = 0x2000;
const FRAGMENT: u8 = 44;
pub(super) const FRAGMENT_BYTES: usize = 8;
/// What may not fit behind the headers of the first IPv6 fragment, which are longer than the frame's.
pub(super) const TAIL_BYTES: usize = FRAGMENT_BYTES;

/// Private memory for a few bytes of a frame.
pub(super) type Tail = [u8; TAIL_BYTES];

/// A place in the rest of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    rest: usize,
    offset: usize,
}

impl Cursor {
    /// Goes on by `len` bytes, which come in one view after the other.
    #[inline]
    pub(super) fn take<'m>(&mut self, rest: &[View<'m>], mut len: usize, mut use_view: impl FnMut(View<'m>)) {
        while len > 0 {
            let Some(view) = rest.get(self.rest) else { return };
            let part = len.min(view.len() - self.offset);
            if let Some(part) = view.sub(self.offset, part) {
                use_view(part);
            }
            (len, self.offset) = (len - part, self.offset + part);
            if self.offset == view.len() {
                *self = Self { rest: self.rest + 1, offset: 0 };
            }
        }
    }
}

/// The sum of a frame's bytes from `start` on.
pub(crate) fn sum_from(frame: &Frame<'_, '_>, start: usize) -> Sum {
    let mut sum = Sum::default();
    let head = &frame.head().0[..frame.head_len()];
    sum.add(head.get(start..).unwrap_or(&[]));
    let mut cursor = Cursor::default();
    cursor.take(frame.rest(), start.saturating_sub(frame.head_len()), drop);
    cursor.take(frame.rest(), frame.len(), |view| sum.add_view(view));
    sum
}

/// Numbers for IPv6 fragments, the same for all of a datagram (RFC 8200, 4.5).
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

/// How far a frame has been cut.
#[derive(Debug)]
pub(super) struct Cut<'b, 'm> {
    frame: Frame<'b, 'm>,
    offload: Offload,
    headers: Headers,
    /// Where the first segment's own bytes begin in the frame.
    first: usize,
    /// Where those of the next one do.
    at: usize,
    size: usize,
    number: u16,
    rest: Cursor,
    /// Of a datagram to be fragmented: its checksum and its number.
    checksum: [u8; 2],
    fragment: u32,
}

impl<'b, 'm> Cut<'b, 'm> {
    /// Of a frame that was admitted with this offload, a segmentation.
    pub(super) fn new(frame: Frame<'b, 'm>, offload: Offload, numbers: &mut FragmentNumbers) -> Option<Self> {
        let headers = Headers::find(&frame.head().0)?;
        let (first, size) = headers::cut(&headers, &offload);
        let (mut checksum, mut fragment) = ([0; 2], 0);
        if offload.gso == Gso::Udp4Frag {
            (checksum, fragment) = (sum_from(&frame, headers.transport).checksum(), numbers.next());
        }
        let rest = Cursor::default();
        Some(Self { frame, offload, headers, first, at: first, size, number: 0, rest, checksum, fragment })
    }

    /// Adds the next segment to `chunk`, without checksum for a receiver that accepts that. True after the last.
    pub(super) fn segment<'x>(&mut self, chunk: &mut Batch<'x>, tail: &'x mut Tail, accepts: Accepts) -> bool
    where
        'm: 'x,
    {
        let (frame, is_fragment) = (self.frame, self.offload.gso == Gso::Udp4Frag);
        let bytes = self.size.min(frame.len() - self.at);
        let (head, rests) = chunk.draft();
        head.0[..self.first].copy_from_slice(&frame.head().0[..self.first]);
        let base = self.first + if is_fragment && self.headers.v6 { FRAGMENT_BYTES } else { 0 };

        // Bytes that were judged come from the private copy, the others are where they were.
        let judged = frame.head().0[..frame.head_len()].get(self.at..).unwrap_or(&[]);
        let judged = &judged[..judged.len().min(bytes)];
        let (near, far) = judged.split_at(judged.len().min(HEAD_BYTES - base));
        let head_len = base + near.len();
        head.0[base..head_len].copy_from_slice(near);
        let mark = rests.len();
        if !far.is_empty() {
            let far_bytes = &mut tail[..far.len()];
            far_bytes.copy_from_slice(far);
            rests.push(View::private(far_bytes));
        }
        self.rest.take(frame.rest(), bytes - judged.len(), |view| rests.push(view));

        let last = self.at + bytes == frame.len();
        let mut offload = None;
        if is_fragment {
            self.patch_fragment(head, base, last);
        } else {
            self.patch_transport(head, bytes, last);
            let partial = accepts.contains(Accepts::CSUM);
            self.patch_sum(
                &mut head.0[..head_len],
                &rests[mark..],
                self.headers.end - self.headers.transport + bytes,
                partial,
            );
            offload =
                partial.then_some(Offload { gso: Gso::None, ecn: false, hdr_len: 0, gso_size: 0, ..self.offload });
        }
        self.patch_ip(head, base + bytes - self.headers.ip);
        chunk.seal(head_len, offload);
        self.at += bytes;
        self.number = self.number.wrapping_add(1);
        last
    }

    /// The IP header of a segment of `len` bytes from there on.
    fn patch_ip(&self, head: &mut Head, len: usize) {
        let ip = self.headers.ip;
        if self.headers.v6 {
            put(head, ip + 4, len - IPV6_BYTES);
            return;
        }
        put(head, ip + 2, len);
        if self.offload.gso != Gso::Udp4Frag {
            let number = u16::from_be_bytes([head.0[ip + 4], head.0[ip + 5]]).wrapping_add(self.number);
            put(head, ip + 4, number.into());
        }
        put(head, ip + 10, 0);
        let mut sum = Sum::default();
        sum.add(&head.0[ip..self.headers.transport]);
        head.0[ip + 10..ip + 12].copy_from_slice(&sum.checksum());
    }

    /// The TCP or UDP header of a segment with `bytes` bytes after it.
    fn patch_transport(&self, head: &mut Head, bytes: usize, last: bool) {
        let Headers { transport, end, .. } = self.headers;
        if self.offload.gso == Gso::UdpL4 {
            put(head, transport + 4, end - transport + bytes);
            return;
        }
        let field = &mut head.0[transport + 4..transport + 8];
        let number = field.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
        field.copy_from_slice(&number.wrapping_add((self.at - self.first) as u32).to_be_bytes());
        let flags = &mut head.0[transport + 13];
        if !last {
            *flags &= !(FIN | PSH);
        }
        if self.number > 0 {
            *flags &= !CWR;
        }
    }

    /// The checksum of a segment whose transport header and payload have `len` bytes. The frame's field holds the sum of its
    /// pseudo header (virtio 1.3, 5.1.6.2), in which only the length is another.
    fn patch_sum(&self, head: &mut [u8], rests: &[View<'_>], len: usize, partial: bool) {
        let transport = self.headers.transport;
        let field = transport + usize::from(self.offload.csum_offset);
        let mut sum = Sum::default();
        sum.add(&head[field..field + 2]);
        sum.replace(self.frame.len() - transport, len);
        head[field..field + 2].copy_from_slice(&sum.field());
        if !partial {
            let mut sum = Sum::default();
            sum.add(&head[transport..]);
            rests.iter().for_each(|&view| sum.add_view(view));
            head[field..field + 2].copy_from_slice(&sum.checksum());
        }
    }

    /// What makes a fragment of it (RFC 791, 3.2; RFC 8200, 4.5).
    fn patch_fragment(&self, head: &mut Head, base: usize, last: bool) {
        let Headers { ip, v6, transport, protocol, next_header, .. } = self.headers;
        let offset = self.at - self.first;
        if v6 {
            head.0[next_header] = FRAGMENT;
            let [a, b] = (offset as u16 | u16::from(!last)).to_be_bytes();
            let [c, d, e, f] = self.fragment.to_be_bytes();
            head.0[transport..base].copy_from_slice(&[protocol, 0, a, b, c, d, e, f]);
        } else {
            put(head, ip + 6, (offset / 8) | if last { 0 } else { MORE_FRAGMENTS });
            if offset > 0 {
                blank_options(&mut head.0[ip + 20..transport]);
            }
        }
        if offset == 0 {
            let field = base + usize::from(self.offload.csum_offset);
            head.0[field..field + 2].copy_from_slice(&self.checksum);
        }
    }
}

/// Puts a number of 16 bits.
fn put(head: &mut Head, at: usize, number: usize) {
    head.0[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes());
}

/// Options that belong to the first fragment only become no-operations (RFC 791, 3.1).
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
        if option[0] & COPIED == 0 {
            option.fill(NO_OPERATION);
        }
        options = others;
    }
}
