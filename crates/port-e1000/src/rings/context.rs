//! Work that a descriptor asks for beyond sending its bytes: checksums and segmentation (SDM 3.3.3, 3.3.6, 3.4 and 3.5).
//!
//! A request becomes an `Offload` where the request is what TCP and UDP need. The header of a frame to be cut is completed in
//! the private head (the driver leaves lengths out), and the switch cuts the frame only for a destination that needs
//! segments. A sum that ends before the frame does is made in a private copy of the frame. Tags, padding and IPv4 header
//! checksums go into the private head, too.
//!
//! The manual lets a driver name any places of a frame. Sums go into the own checksum fields of the frame's IPv4 and
//! transport headers only, as [`Headers`] finds them. A frame that asks for anything else is refused (`bad_offload`), and so
//! is a frame to be cut whose headers are not where the context says, or do not end in the first 124 bytes.
//!
//! All numbers here are a driver's, and no sum or difference of them wraps.

use ringway_memory::{HEAD_BYTES, Head, View, ones_sum};
use ringway_switch::{DropReason, Gso, Headers, Offload};

use super::descriptor::{EOP, IC, IXSM, Kind, TXSM, Transmitted};
use crate::kept::CONTEXT_WORDS;

/// Bytes of a VLAN tag, which is inserted before all bytes that are summed.
pub(super) const TAG: usize = 4;
/// The bytes of the private head that may be changed. A tag may still be inserted.
const NEAR: usize = HEAD_BYTES - TAG;
const IPV6_BYTES: usize = 40;
/// Offset of the checksum in an IPv4 header.
const IP_SUM: usize = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
/// "Congestion window reduced" in the flags of a TCP header.
const CWR: u8 = 0x80;

/// A context descriptor: parameters for the data descriptors that follow (SDM 3.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Context {
    places: u64,
    sizes: u64,
}

/// The context for frames without segmentation, and the one for segmentation. Each data descriptor refers to one of
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contexts {
    whole: Context,
    pub(super) segments: Context,
}

impl Contexts {
    pub(super) fn set(&mut self, descriptor: Transmitted) {
        let context = Context { places: descriptor.address, sizes: descriptor.word };
        // In a context descriptor, the bit of IC is TSE.
        *if descriptor.has(IC) { &mut self.segments } else { &mut self.whole } = context;
    }

    /// Returns the contexts as words.
    pub(super) fn words(&self) -> [u64; CONTEXT_WORDS] {
        let Contexts { whole, segments } = self;
        [whole.places, whole.sizes, segments.places, segments.sizes]
    }

    /// Returns the contexts that these words are. Any words are some.
    pub(super) fn of_words([places, sizes, segment_places, segment_sizes]: [u64; CONTEXT_WORDS]) -> Contexts {
        let segments = Context { places: segment_places, sizes: segment_sizes };
        Contexts { whole: Context { places, sizes }, segments }
    }
}

impl Context {
    fn byte(self, place: u32) -> usize {
        (self.places >> place & 0xff) as usize
    }

    fn end(self, place: u32) -> usize {
        match self.places >> place & 0xffff {
            0 => usize::MAX,
            last => (last as usize).saturating_add(1),
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

    /// TCP, not UDP. The bit is that of a data descriptor's EOP.
    fn is_tcp(self) -> bool {
        self.sizes & EOP != 0
    }

    /// IPv4, not IPv6.
    fn is_ipv4(self) -> bool {
        self.sizes & 1 << 25 != 0
    }

    /// Bytes of the headers.
    fn header(self) -> usize {
        (self.sizes >> 40 & 0xff) as usize
    }

    /// Most payload bytes of a segment.
    fn segment(self) -> usize {
        (self.sizes >> 48) as usize
    }
}

/// A checksum: the sum of the bytes from `start` up to `end` goes to `field`. Offsets count from the frame's first
/// byte, without an inserted tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    field: usize,
}

impl Span {
    /// Cuts the range to a frame of `len` bytes. Returns `None` if it is outside the frame (SDM 3.3.3.1, IC).
    fn within(self, len: usize) -> Option<Span> {
        let end = self.end.min(len);
        (self.start < end && self.field.saturating_add(1) < len).then_some(Span { end, ..self })
    }

    /// Shifts the range in a frame into which `bytes` bytes were inserted before it.
    fn behind(self, bytes: usize) -> Span {
        let [start, end, field] = [self.start, self.end, self.field].map(|at| at.saturating_add(bytes));
        Span { start, end, field }
    }

    /// Computes the checksum. Returns its offset and its value.
    fn of(self, frame: View<'_>) -> Option<(usize, [u8; 2])> {
        let sum = frame.sub(self.start, self.end.checked_sub(self.start)?)?.ones_sum();
        Some((self.field, checksum(sum)))
    }
}

/// Never returns zero, which in UDP means "no checksum" (RFC 768). In the other protocols both values are equivalent.
fn checksum(sum: u16) -> [u8; 2] {
    match !sum {
        0 => [0xff, 0xff],
        sum => sum.to_ne_bytes(),
    }
}

/// The checksums to insert into a frame without segmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    ip: Option<Span>,
    transport: Option<Span>,
}

impl Sums {
    /// Returns the checksums that the first and the last descriptor of a frame of `len` bytes request.
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

    /// Returns true if no checksum is requested.
    pub(super) fn is_empty(&self) -> bool {
        *self == Sums::default()
    }

    /// Returns true if the receiver can complete the transport checksum (it covers the frame to its end, `len`), and
    /// the IP checksum covers only bytes in the private head.
    pub(super) fn is_usual(&self, len: usize) -> bool {
        self.transport.is_none_or(|span| span.end == len) && self.ip.is_none_or(|span| span.end <= NEAR)
    }

    /// Returns true if each checksum goes into the field of its own header, in a frame that begins with `head`.
    fn are_right(&self, head: &[u8]) -> bool {
        let Some(headers) = Headers::read(head) else { return self.is_empty() };
        let ip_sum = headers.ip.saturating_add(IP_SUM);
        let ip = self.ip.is_none_or(|ip| !headers.v6 && ip.start == headers.ip && ip.field == ip_sum);
        let transport = self.transport.is_none_or(|transport| {
            let field = headers.checksum_offset(head).and_then(|offset| headers.transport.checked_add(offset));
            transport.start == headers.transport && field == Some(transport.field)
        });
        ip && transport
    }

    /// Inserts the checksums into a frame in private memory.
    ///
    /// # Errors
    /// A checksum would not go into the field of its own header.
    pub(super) fn insert(&self, frame: View<'_>) -> Result<(), DropReason> {
        let mut head = Head::default();
        let near = frame.read_head(frame.len(), &mut head);
        if !self.are_right(head.0.get(..near).unwrap_or(&[])) {
            return Err(DropReason::BadOffload);
        }
        let sums = [self.ip, self.transport].map(|span| span.and_then(|span| span.of(frame)));
        for (field, sum) in sums.into_iter().flatten() {
            let _ = frame.sub(field, 2).is_some_and(|place| place.write(&sum));
        }
        Ok(())
    }

    /// Inserts the IP checksum into a private head in which `shift` bytes of tag were inserted. Returns the transport
    /// checksum as an offload.
    ///
    /// # Errors
    /// A checksum would not go into the field of its own header.
    pub(super) fn finish(&self, head: &mut [u8], shift: usize) -> Result<Option<Offload>, DropReason> {
        let bad = DropReason::BadOffload;
        let [ip, transport] = [self.ip, self.transport].map(|span| span.map(|span| span.behind(shift)));
        if !(Sums { ip, transport }).are_right(head) {
            return Err(bad);
        }
        if let Some(ip) = ip {
            let sum = checksum(ones_sum(head.get(ip.start..ip.end).ok_or(bad)?));
            write(head, ip.field, &sum).ok_or(bad)?;
        }
        let Some(transport) = transport else { return Ok(None) };
        Ok(Some(Offload {
            needs_csum: true,
            csum_start: transport.start as u16,
            csum_offset: transport.field.checked_sub(transport.start).ok_or(bad)? as u16,
            ..Offload::default()
        }))
    }
}

impl Context {
    /// Returns true if a frame of `len` bytes for segmentation has the length that the context states. Otherwise it
    /// counts for TSCTFC.
    pub(super) fn fits(self, len: usize) -> bool {
        len.checked_sub(self.header()) == Some(self.payload())
    }

    /// Turns the headers of a frame of `len` bytes for segmentation into those of one large frame: lengths, IP header
    /// checksum, and the length in the pseudo-header sum, which the driver leaves out (SDM 3.5.6 and 3.5.7). `head` is
    /// the private head, in which `shift` bytes of tag were inserted. Returns the remaining offload. A frame that fits
    /// into one segment is not segmented.
    ///
    /// # Errors
    /// The headers are not where the context says, or segments would have no payload.
    pub(super) fn prepare(self, head: &mut [u8], len: usize, shift: usize) -> Result<Offload, DropReason> {
        self.prepared(head, len, shift).ok_or(DropReason::BadOffload)
    }

    fn prepared(self, head: &mut [u8], len: usize, shift: usize) -> Option<Offload> {
        let (v4, tcp) = (self.is_ipv4(), self.is_tcp());
        let Headers { ip, v6, transport, protocol, .. } = Headers::read(head)?;
        let [header, len, near] = [self.header(), len, NEAR].map(|bytes| bytes.saturating_add(shift));
        let said = self.transport().behind(shift);
        let is_there = self.ip().behind(shift).start == ip && said.start == transport && v6 != v4;
        if !is_there || protocol != if tcp { TCP } else { UDP } || header > len.min(near) {
            return None;
        }
        let transport_bytes = match tcp {
            true => usize::from(head.get(transport..)?.get(12)? >> 4).max(5) << 2,
            false => UDP_BYTES,
        };
        let csum_offset = said.field.checked_sub(transport)?;
        let ip_bytes = len.checked_sub(ip)?.checked_sub(if v4 { 0 } else { IPV6_BYTES })?;
        if self.segment() == 0
            || transport.checked_add(transport_bytes) != Some(header)
            || csum_offset.saturating_add(2) > transport_bytes
            || ip_bytes > 0xffff
        {
            return None;
        }
        if v4 {
            let ip_header = head.get_mut(ip..transport)?;
            put(ip_header, 2, ip_bytes)?;
            put(ip_header, IP_SUM, 0)?;
            let sum = checksum(ones_sum(ip_header));
            write(ip_header, IP_SUM, &sum)?;
        } else {
            put(head.get_mut(ip..)?, 4, ip_bytes)?;
        }
        let seed = head.get(said.field..)?.first_chunk().map(|seed| u32::from(u16::from_be_bytes(*seed)))?;
        let bytes = len.checked_sub(transport)?;
        // The length has 16 bits, too, so there is at most one carry.
        let sum = seed.saturating_add(bytes as u32);
        put(head, said.field, (sum & 0xffff).saturating_add(sum >> 16) as usize)?;
        let cut = len.checked_sub(header)? > self.segment();
        let gso = match (tcp, v4) {
            _ if !cut => Gso::None,
            (true, true) => Gso::Tcp4,
            (true, false) => Gso::Tcp6,
            (false, _) => Gso::UdpL4,
        };
        if !cut && !tcp {
            put(head.get_mut(transport..)?, 4, bytes)?;
        }
        Some(Offload {
            needs_csum: true,
            gso,
            ecn: cut && tcp && head.get(transport..)?.get(13)? & CWR != 0,
            hdr_len: 0,
            gso_size: if cut { self.segment() as u16 } else { 0 },
            csum_start: transport as u16,
            csum_offset: csum_offset as u16,
            tunnel: None,
        })
    }
}

/// Writes bytes into a head. Returns `None` if the head is too short.
fn write(head: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    head.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    Some(())
}

/// Writes a 16-bit number, big-endian.
fn put(head: &mut [u8], at: usize, number: usize) -> Option<()> {
    write(head, at, &(number as u16).to_be_bytes())
}
