//! What coalescing reads of a TCP segment, and when two segments can be one frame.

use crate::batch::Frame;
use crate::frame::headers::{IPV4_BYTES, IPV6_BYTES};
use crate::frame::{Gso, Offload, Sum};

const ETHERNET: usize = 14;
const TAG_BYTES: usize = 4;
const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const TCP_BYTES: usize = 20;
/// Where the checksum is in a TCP header.
const CSUM: usize = 16;
const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// What a frame is to coalescing.
pub(super) enum Reading {
    /// No TCP.
    Other,
    /// It may belong to any TCP flow: a fragment, or a segment behind headers that are not read here.
    Unclear,
    Tcp(Segment),
}

/// A TCP segment whose headers are all in the frame's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    ip: u8,
    pub(super) transport: u8,
    /// The end of the TCP header, where the payload begins.
    pub(super) end: u8,
    pub(super) v6: bool,
    /// It can be a part of a larger frame: it has nothing but data, and its lengths are those of the frame.
    pub(super) is_data: bool,
    /// It can only be the last part.
    pub(super) is_last: bool,
    /// Bytes of payload.
    pub(super) payload: u16,
    /// The same for all segments of a flow. Other flows may have the same value, too.
    pub(super) flow: u64,
}

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..)?.first_chunk().copied()
}

fn word(head: &[u8], at: usize) -> Option<u16> {
    bytes(head, at).map(u16::from_be_bytes)
}

/// Reads a frame.
#[inline(always)]
pub(super) fn read(frame: &Frame<'_, '_>) -> Reading {
    // IPv4 without tags and options. All offsets are constants.
    const TRANSPORT: usize = ETHERNET + IPV4_BYTES;
    let head = &frame.head().0;
    if frame.head_len() < TRANSPORT + TCP_BYTES || head[12..15] != [0x08, 0x00, 0x45] {
        return read_any(frame);
    }
    if head[ETHERNET + 9] != TCP {
        return Reading::Other;
    }
    if [head[ETHERNET + 6] & 0x3f, head[ETHERNET + 7]] != [0, 0] {
        return Reading::Unclear;
    }
    segment(frame, ETHERNET, TRANSPORT, false).map_or(Reading::Unclear, Reading::Tcp)
}

/// Reads a frame of any layout.
#[inline(never)]
fn read_any(frame: &Frame<'_, '_>) -> Reading {
    let head = frame.first_bytes();
    let mut ip = ETHERNET;
    let mut kind = word(head, ip - 2);
    // Linux segments frames behind these tags only.
    while matches!(kind, Some(TAG | SERVICE_TAG)) {
        ip += TAG_BYTES;
        kind = word(head, ip - 2);
    }
    let (transport, v6) = match kind {
        Some(IPV4) => match (bytes::<10>(head, ip), word(head, ip + 6)) {
            (Some([.., protocol]), _) if protocol != TCP => return Reading::Other,
            (Some([0x45, ..]), Some(fragment)) if fragment & 0x3fff == 0 => (ip + IPV4_BYTES, false),
            // Options, or a fragment.
            _ => return Reading::Unclear,
        },
        Some(IPV6) => match bytes::<7>(head, ip) {
            Some([0x60..0x70, .., TCP]) => (ip + IPV6_BYTES, true),
            Some([.., UDP | ICMP6]) => return Reading::Other,
            // Extension headers, or a fragment.
            _ => return Reading::Unclear,
        },
        Some(_) => return Reading::Other,
        None => return Reading::Unclear,
    };
    segment(frame, ip, transport, v6).map_or(Reading::Unclear, Reading::Tcp)
}

/// Reads the headers of a TCP segment. `None`: the frame ends within them.
#[inline(always)]
fn segment(frame: &Frame<'_, '_>, ip: usize, transport: usize, v6: bool) -> Option<Segment> {
    let head = frame.first_bytes();
    let [offset, flags] = bytes(head, transport + 12)?;
    let end = transport + usize::from(offset >> 4) * 4;
    let ports = bytes(head, transport).map(u32::from_be_bytes)?;
    let (addresses, claimed) = if v6 {
        let (pairs, _) = head.get(ip + 8..transport)?.as_chunks::<8>();
        let folded = pairs.iter().fold(0, |all: u64, pair| all.rotate_left(9) ^ u64::from_be_bytes(*pair));
        (folded, usize::from(word(head, ip + 4)?) + IPV6_BYTES)
    } else {
        (bytes(head, ip + 12).map(u64::from_be_bytes)?, usize::from(word(head, ip + 2)?))
    };
    let flow = addresses.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ u64::from(ports);
    let is_whole = end >= transport + TCP_BYTES && end <= head.len() && ip + claimed == frame.len();
    let payload = u16::try_from(frame.len().saturating_sub(end)).unwrap_or(0);
    let is_alone = frame.offload().is_none_or(|offload| offload.gso == Gso::None);
    let is_data = is_whole && payload > 0 && is_alone && flags & !(FIN | PSH | ECE) == ACK;
    let (ip, transport, end) = (u8::try_from(ip).ok()?, u8::try_from(transport).ok()?, u8::try_from(end).unwrap_or(0));
    Some(Segment { ip, transport, end, v6, is_data, is_last: flags & (FIN | PSH) != 0, payload, flow })
}

impl Segment {
    /// The sequence number of its first byte.
    #[inline]
    pub(super) fn sequence(&self, frame: &Frame<'_, '_>) -> u32 {
        bytes(&frame.head().0, usize::from(self.transport) + 4).map_or(0, u32::from_be_bytes)
    }

    /// The identification of its IPv4 header; 0 in IPv6.
    #[inline]
    pub(super) fn identification(&self, frame: &Frame<'_, '_>) -> u16 {
        if self.v6 { 0 } else { word(&frame.head().0, usize::from(self.ip) + 4).unwrap_or(0) }
    }

    /// What segmentation adds to the identification of each next segment.
    #[inline]
    pub(super) fn identification_step(&self) -> u16 {
        u16::from(!self.v6)
    }

    /// Returns true if the frames of two segments have the same headers but for what segmentation changes: lengths, identification,
    /// sequence number, checksums, and the flags of a last segment.
    #[inline]
    pub(super) fn has_headers_of(&self, frame: &Frame<'_, '_>, first: &Segment, first_frame: &Frame<'_, '_>) -> bool {
        let (a, b) = (&frame.head().0, &first_frame.head().0);
        let (ip, transport, end) = (usize::from(self.ip), usize::from(self.transport), usize::from(self.end));
        // The Ethernet header; IP's traffic class and what IPv6 has behind it; flags or hop limit, and the protocol; addresses.
        let same_ip = if self.v6 {
            same::<4>(a, b, ip) && same::<2>(a, b, ip + 6) && same::<32>(a, b, ip + 8)
        } else {
            same::<2>(a, b, ip) && same::<4>(a, b, ip + 6) && same::<8>(a, b, ip + 12)
        };
        // Ports; acknowledgement and the header's length; flags; window; urgent pointer and options.
        let flags = |head: &[u8]| head.get(transport + 13).map(|flags| flags & !(FIN | PSH));
        (self.ip, self.transport, self.end, self.v6) == (first.ip, first.transport, first.end, first.v6)
            && same_ip
            && same::<4>(a, b, transport)
            && same::<5>(a, b, transport + 8)
            && flags(a) == flags(b)
            && same::<2>(a, b, transport + 14)
            && a.get(transport + CSUM + 2..end) == b.get(transport + CSUM + 2..end)
            && same::<14>(a, b, 0)
            && a.get(ETHERNET..ip) == b.get(ETHERNET..ip)
    }

    /// Returns true if the checksums of IP and TCP are correct, in the form in which segmentation writes them.
    pub(super) fn is_sound(&self, frame: &Frame<'_, '_>) -> bool {
        self.check(frame).unwrap_or(false)
    }

    fn check(&self, frame: &Frame<'_, '_>) -> Option<bool> {
        let head = &frame.head().0;
        let (ip, transport) = (usize::from(self.ip), usize::from(self.transport));
        if !self.v6 {
            let mut sum = Sum::default();
            sum.add_words::<IPV4_BYTES>(&bytes(head, ip)?);
            if !sum.is_right(bytes(head, ip + 10)?) {
                return Some(false);
            }
        }
        let mut sum = self.pseudo_sum(head, usize::from(self.payload))?;
        let field: [u8; 2] = bytes(head, transport + CSUM)?;
        Some(match frame.offload() {
            // The field has the sum of the pseudo header; the rest of the checksum is left to the receiver.
            Some(_) => field == sum.field(),
            None => {
                frame.add_from(transport, &mut sum);
                sum.is_right(field)
            }
        })
    }

    /// The sum of the pseudo header of a segment with this payload (RFC 9293, 3.1; RFC 8200, 8.1).
    fn pseudo_sum(&self, head: &[u8], payload: usize) -> Option<Sum> {
        let ip = usize::from(self.ip);
        let len = u16::try_from(usize::from(self.end - self.transport) + payload).ok()?;
        let [high, low] = len.to_be_bytes();
        let mut sum = Sum::default();
        if self.v6 {
            sum.add_words::<32>(&bytes(head, ip + 8)?);
        } else {
            sum.add_words::<8>(&bytes(head, ip + 12)?);
        }
        sum.add_words(&[high, low, 0, TCP]);
        Some(sum)
    }

    /// Makes the headers of a first segment those of a frame with this payload, to be cut into pieces of `size` bytes; `last` is the
    /// last segment's head.
    pub(super) fn enlarge(&self, head: &mut [u8], payload: usize, size: u16, last: &[u8]) -> Option<Offload> {
        let (ip, transport, end) = (usize::from(self.ip), usize::from(self.transport), usize::from(self.end));
        let (length, uncounted) = if self.v6 { (ip + 4, ip + IPV6_BYTES) } else { (ip + 2, ip) };
        put(head, length, u16::try_from((end + payload).checked_sub(uncounted)?).ok()?.to_be_bytes())?;
        if !self.v6 {
            put(head, ip + 10, [0, 0])?;
            let mut sum = Sum::default();
            sum.add(head.get(ip..transport)?);
            put(head, ip + 10, sum.checksum())?;
        }
        *head.get_mut(transport + 13)? |= last.get(transport + 13)? & (FIN | PSH);
        let pseudo = self.pseudo_sum(head, payload)?.field();
        put(head, transport + CSUM, pseudo)?;
        Some(Offload {
            needs_csum: true,
            gso: if self.v6 { Gso::Tcp6 } else { Gso::Tcp4 },
            ecn: false,
            hdr_len: self.end.into(),
            gso_size: size,
            csum_start: self.transport.into(),
            csum_offset: CSUM as u16,
            tunnel: None,
        })
    }
}

/// Returns true if `N` bytes of two heads are equal.
#[inline(always)]
fn same<const N: usize>(a: &[u8], b: &[u8], at: usize) -> bool {
    bytes::<N>(a, at) == bytes::<N>(b, at)
}

fn put(head: &mut [u8], at: usize, value: [u8; 2]) -> Option<()> {
    *head.get_mut(at..)?.first_chunk_mut()? = value;
    Some(())
}
