//! What a descriptor asks for beyond sending its bytes: checksums at any place, and segmentation (SDM 3.3.3, 3.3.6, 3.4
//! and 3.5).

use ringway_memory::{HEAD_BYTES, Head, View, ones_sum};
use ringway_switch::{DropReason, Gso, Offload};

use super::descriptor::{EOP, IC, IXSM, Kind, TXSM, Transmitted};

/// An Ethernet header.
const HEADER: usize = 14;
/// Bytes of a VLAN tag, which is inserted before everything that is summed.
pub(super) const TAG: usize = 4;
/// What of the private head may be changed: a tag may follow.
const NEAR: usize = HEAD_BYTES - TAG;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// "Congestion window reduced", in a TCP header's flags.
const CWR: u8 = 0x80;

/// A context descriptor: what the data descriptors after it mean (SDM 3.3.6).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    places: u64,
    sizes: u64,
}

/// The one for frames as they are, and the one for segmentation: each data descriptor refers to one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contexts {
    whole: Context,
    pub(super) segments: Context,
}

impl Contexts {
    pub(super) fn set(&mut self, descriptor: Transmitted) {
        let context = Context { places: descriptor.address, sizes: descriptor.word };
        // TSE has the place of IC.
        *if descriptor.has(IC) { &mut self.segments } else { &mut self.whole } = context;
    }
}

impl Context {
    fn byte(self, place: u32) -> usize {
        (self.places >> place & 0xff) as usize
    }

    fn end(self, place: u32) -> usize {
        match self.places >> place & 0xffff {
            0 => usize::MAX,
            last => last as usize + 1,
        }
    }

    fn ip(self) -> Span {
        Span { start: self.byte(0), field: self.byte(8), end: self.end(16) }
    }

    fn transport(self) -> Span {
        Span { start: self.byte(32), field: self.byte(40), end: self.end(48) }
    }

    /// Bytes after the headers.
    fn payload(self) -> usize {
        (self.sizes & 0xf_ffff) as usize
    }

    /// TCP rather than UDP. The place of a data descriptor's EOP.
    fn is_tcp(self) -> bool {
        self.sizes & EOP != 0
    }

    /// IPv4 rather than IPv6.
    fn is_ipv4(self) -> bool {
        self.sizes & 1 << 25 != 0
    }

    /// Bytes of the headers.
    fn header(self) -> usize {
        (self.sizes >> 40 & 0xff) as usize
    }

    /// Most bytes after the headers of a segment.
    fn segment(self) -> usize {
        (self.sizes >> 48) as usize
    }
}

/// The sum of the bytes from `start` up to `end` goes to `field`. Offsets from a frame's first byte, without its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    field: usize,
}

impl Span {
    /// As far as a frame of `len` bytes has it; `None` if it is out of the frame's range (SDM 3.3.3.1, IC).
    fn within(self, len: usize) -> Option<Span> {
        let end = self.end.min(len);
        (self.start < end && self.field + 1 < len).then_some(Span { end, ..self })
    }

    /// The checksum and its place.
    fn of(self, frame: View<'_>) -> Option<(usize, [u8; 2])> {
        let sum = frame.sub(self.start, self.end - self.start)?.ones_sum();
        Some((self.field, checksum(sum)))
    }
}

/// Never zero, which in UDP means that there is none (RFC 768); in the other protocols both mean the same.
fn checksum(sum: u16) -> [u8; 2] {
    match !sum {
        0 => [0xff, 0xff],
        sum => sum.to_ne_bytes(),
    }
}

/// The checksums of a frame that is sent as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    ip: Option<Span>,
    transport: Option<Span>,
}

impl Sums {
    /// What the first and the last descriptor of a frame of `len` bytes ask for.
    pub(super) fn asked(first: Transmitted, last: Transmitted, contexts: &Contexts, len: usize) -> Sums {
        let mut sums = Sums::default();
        if first.kind() == Kind::Data {
            if first.has(IXSM) {
                sums.ip = contexts.whole.ip().within(len);
            }
            if first.has(TXSM) {
                sums.transport = contexts.whole.transport().within(len);
            }
        } else if last.kind() == Kind::Legacy && last.has(IC) {
            let (start, field) = ((first.word >> 40 & 0xff) as usize, (last.word >> 16 & 0xff) as usize);
            sums.transport = Span { start, field, end: usize::MAX }.within(len);
        }
        sums
    }

    /// Whether whoever gets a frame of `len` bytes can make the sum over its end, and the other is in the private head.
    pub(super) fn is_usual(&self, len: usize) -> bool {
        let at_end = |span: Span| span.end == len && span.start >= HEADER && span.field >= span.start;
        let near = |span: Span| span.end.max(span.field + 2) <= NEAR && span.start >= HEADER && span.field >= HEADER;
        let before = self.ip.zip(self.transport).is_none_or(|(ip, transport)| ip.field + 2 <= transport.start);
        self.transport.is_none_or(at_end) && self.ip.is_none_or(near) && before
    }

    /// Inserts them into a frame in private memory.
    pub(super) fn insert(&self, frame: View<'_>) {
        let sums = [self.ip, self.transport].map(|span| span.and_then(|span| span.of(frame)));
        for (field, sum) in sums.into_iter().flatten() {
            let _ = frame.sub(field, 2).is_some_and(|place| place.write(&sum));
        }
    }

    /// Inserts the usual one into a private head in which `shift` bytes of tag were inserted, and says what of the other is
    /// left to do.
    pub(super) fn finish(&self, head: &mut Head, shift: usize) -> Option<Offload> {
        if let Some(ip) = self.ip {
            let sum = checksum(ones_sum(&head.0[ip.start + shift..ip.end + shift]));
            head.0[ip.field + shift..][..2].copy_from_slice(&sum);
        }
        let transport = self.transport?;
        Some(Offload {
            needs_csum: true,
            csum_start: (transport.start + shift) as u16,
            csum_offset: (transport.field - transport.start) as u16,
            ..Offload::default()
        })
    }
}

impl Context {
    /// Whether a frame of `len` bytes to be cut is as long as was said (else it counts for TSCTFC).
    pub(super) fn fits(self, len: usize) -> bool {
        self.header() + self.payload() == len
    }

    /// Makes the headers of a frame of `len` bytes to be cut those of one large frame: lengths, header checksum, and the
    /// length in the pseudo header's sum, which the driver leaves out (SDM 3.5.6 and 3.5.7). Says what is left to do: one
    /// that fits into a segment is not cut.
    ///
    /// # Errors
    /// The headers are not where the context says, or the segments have no bytes.
    pub(super) fn prepare(self, head: &mut Head, len: usize, shift: usize) -> Result<Offload, DropReason> {
        let bad = DropReason::BadOffload;
        let (ip, transport) = (self.ip().start, self.transport());
        let header = self.header();
        let bytes = head.0.get_mut(shift..).ok_or(bad)?;
        let places = [HEADER, ip, transport.start, transport.field, header, len.min(NEAR)];
        if !places.is_sorted() || transport.start < ip + 20 || transport.field + 2 > header {
            return Err(bad);
        }
        let (v4, tcp) = (self.is_ipv4(), self.is_tcp());
        let words = usize::from(bytes[ip] & 15);
        let there = match (v4, bytes[ip] >> 4) {
            (true, 4) => transport.start == ip + words * 4,
            (false, 6) => transport.start >= ip + IPV6_BYTES,
            _ => false,
        };
        let transport_bytes = match tcp {
            true => usize::from(bytes.get(transport.start + 12).ok_or(bad)? >> 4).max(5) * 4,
            false => UDP_BYTES,
        };
        let ip_bytes = len - ip - if v4 { 0 } else { IPV6_BYTES };
        if !there || self.segment() == 0 || transport.start + transport_bytes != header || ip_bytes > 0xffff {
            return Err(bad);
        }
        if v4 {
            put(bytes, ip + 2, ip_bytes);
            put(bytes, ip + 10, 0);
            let sum = checksum(ones_sum(&bytes[ip..transport.start]));
            bytes[ip + 10..ip + 12].copy_from_slice(&sum);
        } else {
            put(bytes, ip + 4, ip_bytes);
        }
        let seed = u32::from(u16::from_be_bytes([bytes[transport.field], bytes[transport.field + 1]]));
        // The length has 16 bits, too, so one carry is all there can be.
        let sum = seed + (len - transport.start) as u32;
        put(bytes, transport.field, ((sum & 0xffff) + (sum >> 16)) as usize);
        let cut = len - header > self.segment();
        let gso = match (tcp, v4) {
            _ if !cut => Gso::None,
            (true, true) => Gso::Tcp4,
            (true, false) => Gso::Tcp6,
            (false, _) => Gso::UdpL4,
        };
        if !cut && !tcp {
            put(bytes, transport.start + 4, len - transport.start);
        }
        Ok(Offload {
            needs_csum: true,
            gso,
            ecn: cut && tcp && bytes[transport.start + 13] & CWR != 0,
            hdr_len: 0,
            gso_size: if cut { self.segment() as u16 } else { 0 },
            csum_start: (transport.start + shift) as u16,
            csum_offset: (transport.field - transport.start) as u16,
        })
    }
}

/// Puts a number of 16 bits.
fn put(bytes: &mut [u8], at: usize, number: usize) {
    bytes[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes());
}
