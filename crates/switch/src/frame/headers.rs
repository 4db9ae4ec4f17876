//! Reads a frame's headers, and checks the frame against its offload.

pub use ringway_abi::layout::MAX_OFFLOADED_FRAME as MAX_FRAME;
use ringway_abi::offload::{Gso, Offload};
use ringway_memory::HEAD_BYTES;

use super::class::is_tag;
use super::drop_reason::DropReason;

/// Most segments of one frame: 64 bytes each make 64 KiB. With smaller segments one frame would cost more than a batch.
pub(crate) const MAX_SEGMENTS: usize = 1024;

pub(super) const ETHERNET: usize = 14;
/// Bytes of a VLAN tag, which may be added to a frame before segmentation.
pub(super) const TAG_BYTES: usize = 4;
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
/// Types below this are lengths (IEEE 802.3, 3.2.6).
const FIRST_TYPE: u16 = 0x0600;
const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const GRE: u8 = 47;
pub(super) const UDP_BYTES: usize = 8;
const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
/// UDP ports of VXLAN: RFC 7348, 8, and the kernel's default.
const VXLAN: [u16; 2] = [4789, 8472];
/// The UDP port of Geneve (RFC 8926, 3.3).
const GENEVE: u16 = 6081;
/// The type of an Ethernet frame in a tunnel.
const BRIDGED: u16 = 0x6558;
/// Protocols and extension headers that carry nothing with a checksum of its own, or of which the guard reads more than eight bytes: TCP,
/// fragments, authentication, ICMPv6, mobility, HIP, Shim6.
const NO_TUNNELS: [u8; 7] = [TCP, 44, 51, 58, 135, 139, 140];
/// Most bytes before the end of a checksum field: outputs write it into a frame's first piece.
const MOST_BEFORE_CHECKSUM: usize = 512;
/// Offset of the first transport header that there can be: behind an Ethernet and an IPv4 header.
const FIRST_TRANSPORT: usize = 34;
/// The largest number that the length field of an IP header can hold.
pub(super) const MOST_IP_BYTES: usize = 0xffff;
/// Bytes of the fragment header of an IPv6 fragment (RFC 8200, 4.5).
pub(crate) const FRAGMENT_BYTES: usize = 8;
/// Hop-by-hop options, routing and destination options (RFC 8200, 4.1).
const EXTENSIONS: [u8; 3] = [0, 43, 60];

/// Positions of a frame's outermost IP header and of its transport header. The guard (`policy/guard/claims.rs`) reads
/// headers in the same way; this is the part that offloads refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Beginning of the IP header.
    pub ip: usize,
    /// True for IPv6, false for IPv4.
    pub v6: bool,
    /// Beginning of the transport header, behind the IP header and its extensions. It may be beyond the bytes that were
    /// read.
    pub transport: usize,
    /// IP protocol number of the transport header.
    pub protocol: u8,
    /// True for a fragment of an IPv4 datagram: the bytes behind its header may be anything.
    pub fragment: bool,
    /// Position of the byte that holds the protocol number.
    next_header: usize,
}

fn byte(head: &[u8], at: usize) -> Option<u8> {
    head.get(at).copied()
}

fn word(head: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([byte(head, at)?, byte(head, at + 1)?]))
}

/// Returns the EtherType of the frame that begins at `at`, behind any VLAN tags, and where what it announces begins.
fn behind_tags(head: &[u8], at: usize) -> Option<(u16, usize)> {
    let mut behind = at + ETHERNET;
    let mut kind = word(head, behind - 2)?;
    while is_tag(kind) {
        behind += TAG_BYTES;
        kind = word(head, behind - 2)?;
    }
    Some((kind, behind))
}

/// Returns the end of what policy reads of a frame that may be a tunnel: behind it, a checksum changes no byte that was judged.
fn end_of_judged(head: &[u8]) -> Option<usize> {
    let (kind, behind) = behind_tags(head, 0)?;
    if let Some(headers) = Headers::read(head) {
        // Of the transport header, the guard reads the ports.
        return (!NO_TUNNELS.contains(&headers.protocol)).then_some(headers.transport + UDP_BYTES);
    }
    (kind >= FIRST_TYPE && !matches!(kind, IPV4 | IPV6 | ARP | RARP)).then_some(behind)
}

impl Headers {
    /// Reads the first bytes of a frame: IP behind any VLAN tags. Returns `None` if it is no IP, or if `head` ends
    /// within the chain of headers. The chain of an IPv6 fragment ends at the fragment header.
    #[must_use]
    pub fn read(head: &[u8]) -> Option<Headers> {
        Headers::read_ethernet(head, 0)
    }

    /// Reads the headers of the frame that begins at `at`.
    fn read_ethernet(head: &[u8], at: usize) -> Option<Headers> {
        let (kind, ip) = behind_tags(head, at)?;
        Headers::read_ip(head, ip, kind)
    }

    /// Reads the headers of the packet at `ip`, of this EtherType.
    fn read_ip(head: &[u8], ip: usize, kind: u16) -> Option<Headers> {
        let version = byte(head, ip)? >> 4;
        let (mut next_header, mut transport, fragment) = match (kind, version) {
            (IPV4, 4) => {
                let bytes = usize::from(byte(head, ip)? & 15) * 4;
                if bytes < IPV4_BYTES {
                    return None;
                }
                (ip + 9, ip + bytes, word(head, ip + 6)? & 0x3fff != 0)
            }
            (IPV6, 6) => (ip + 6, ip + IPV6_BYTES, false),
            _ => return None,
        };
        let v6 = kind == IPV6;
        while v6 && EXTENSIONS.contains(&byte(head, next_header)?) {
            next_header = transport;
            transport += (usize::from(byte(head, transport + 1)?) + 1) * 8;
        }
        Some(Headers { ip, v6, transport, protocol: byte(head, next_header)?, fragment, next_header })
    }

    /// Reads the headers of the packet at `ip`, of the version that it says.
    pub(super) fn read_packet(head: &[u8], ip: usize) -> Option<Headers> {
        Headers::read_ip(head, ip, if byte(head, ip)? >> 4 == 6 { IPV6 } else { IPV4 })
    }

    /// Reads the headers of the frame or packet that is in this one's tunnel: VXLAN, Geneve, GRE, or IP in IP. Returns `None` if there is
    /// no such tunnel, or if `head` ends within the headers.
    #[must_use]
    pub fn inner(&self, head: &[u8]) -> Option<Headers> {
        let behind = self.transport + UDP_BYTES;
        match self.protocol {
            _ if self.fragment => None,
            IPV4_IN_IP => Headers::read_ip(head, self.transport, IPV4),
            IPV6_IN_IP => Headers::read_ip(head, self.transport, IPV6),
            UDP => match word(head, self.transport + 2)? {
                port if VXLAN.contains(&port) => Headers::read_ethernet(head, behind + 8),
                // RFC 8926, 3.4: the length of the options in words, and what is in the tunnel.
                GENEVE if word(head, behind + 2)? == BRIDGED => {
                    Headers::read_ethernet(head, behind + 8 + usize::from(byte(head, behind)? & 0x3f) * 4)
                }
                _ => None,
            },
            GRE => {
                // Checksum, key and sequence number take a word each (RFC 2890, 2).
                let words = (byte(head, self.transport)? & 0xb0).count_ones() as usize;
                let behind = self.transport + 4 + 4 * words;
                match word(head, self.transport + 2)? {
                    BRIDGED => Headers::read_ethernet(head, behind),
                    kind => Headers::read_ip(head, behind, kind),
                }
            }
            _ => None,
        }
    }

    /// Offset of the checksum field in the transport header, for protocols with checksum offload: those whose checksum
    /// is the ones' complement sum from the transport header to the frame's end. `head` is what was read.
    #[must_use]
    pub fn checksum_offset(&self, head: &[u8]) -> Option<usize> {
        match self.protocol {
            _ if self.fragment => None,
            TCP => Some(16),
            UDP => Some(6),
            // GRE has the field if bit C is set (RFC 2784, 2.1).
            GRE if byte(head, self.transport)? & 0x80 != 0 => Some(4),
            _ => None,
        }
    }

    /// Returns true if the offload's checksum starts at the transport header and goes into that header's checksum
    /// field.
    pub(super) fn matches_checksum(&self, head: &[u8], offload: &Offload) -> bool {
        usize::from(offload.csum_start) == self.transport
            && self.checksum_offset(head) == Some(offload.csum_offset.into())
    }

    /// The end of the TCP or UDP header, if the header is all in `head`.
    fn end(&self, head: &[u8]) -> Option<usize> {
        let end = match self.protocol {
            _ if self.fragment => return None,
            UDP => self.transport + UDP_BYTES,
            TCP => match usize::from(byte(head, self.transport + 12)? >> 4) {
                words @ 5.. => self.transport + words * 4,
                _ => return None,
            },
            _ => return None,
        };
        (end <= head.len()).then_some(end)
    }

    /// Returns true if the kind of segmentation matches the frame's protocol.
    pub(super) fn supports(&self, gso: Gso) -> bool {
        matches!(
            (gso, self.protocol, self.v6),
            (Gso::Tcp4, TCP, false) | (Gso::Tcp6, TCP, true) | (Gso::Udp4Frag | Gso::UdpL4, UDP, _)
        )
    }
}

/// The headers of a frame that can be segmented. All are within its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentableHeaders {
    pub(crate) ip: usize,
    pub(crate) v6: bool,
    pub(crate) transport: usize,
    pub(crate) protocol: u8,
    pub(crate) next_header: usize,
    /// End of the TCP or UDP header.
    pub(crate) end: usize,
}

impl SegmentableHeaders {
    /// Finds TCP or UDP over IP in the first bytes of a frame. Returns `None` for other protocols, for IP fragments,
    /// and if the headers do not end within `head`.
    pub(crate) fn find(head: &[u8]) -> Option<SegmentableHeaders> {
        SegmentableHeaders::of(head, Headers::read(head)?)
    }

    /// The same of a packet whose headers were read.
    pub(super) fn of(head: &[u8], headers: Headers) -> Option<SegmentableHeaders> {
        let Headers { ip, v6, transport, protocol, next_header, .. } = headers;
        Some(SegmentableHeaders { ip, v6, transport, protocol, next_header, end: headers.end(head)? })
    }

    /// Bytes that segmentation inserts into each piece: the IPv6 fragment header, or nothing.
    fn inserted(&self, gso: Gso) -> usize {
        if self.v6 && gso == Gso::Udp4Frag { FRAGMENT_BYTES } else { 0 }
    }
}

/// Position from which a frame is cut, and the bytes of each piece.
pub(crate) fn cut(headers: &SegmentableHeaders, offload: &Offload) -> (usize, usize) {
    match offload.gso {
        // Fragments begin at multiples of 8 bytes.
        Gso::Udp4Frag => (headers.transport, usize::from(offload.gso_size) & !7),
        _ => (headers.end, offload.gso_size.into()),
    }
}

/// Number of frames on a wire that a frame of `len` bytes becomes, and the bytes of additional headers. The frame
/// begins with `head` and was admitted with this offload.
#[cold]
pub(crate) fn on_a_wire(head: &[u8; HEAD_BYTES], len: usize, offload: &Offload) -> (u64, u64) {
    let (first, size, inserted) = match (offload.gso, offload.tunnel) {
        (Gso::None, _) => return (1, 0),
        (_, Some(_)) => (offload.hdr_len.into(), offload.gso_size.into(), 0),
        _ => {
            let Some(headers) = SegmentableHeaders::find(head) else { return (1, 0) };
            let (first, size) = cut(&headers, offload);
            (first, size, headers.inserted(offload.gso))
        }
    };
    let frames = len.saturating_sub(first).div_ceil(size.max(1)).max(1);
    (frames as u64, ((frames - 1) * first + frames * inserted) as u64)
}

/// Returns the headers, if the checksum goes into the checksum field of the outermost transport header.
#[inline]
fn outermost(head: &[u8], offload: &Offload) -> Option<Headers> {
    Headers::read(head).filter(|headers| headers.matches_checksum(head, offload))
}

/// Returns true if the checksum goes into the checksum field of the outermost transport header.
pub(crate) fn is_outermost(head: &[u8], offload: &Offload) -> bool {
    outermost(head, offload).is_some()
}

/// Checks the offload of a frame of `len` bytes that begins with `head`. Returns the offload with a corrected
/// `hdr_len`, and the number of segments. All kinds of ports use this check.
///
/// The checksum must go into the checksum field of the outermost transport header, or behind all that policy reads, as that of a frame in a
/// tunnel: the sender controls the value, and anywhere else it would change bytes that policy has judged. Segmentation builds the headers of each piece in a head
/// of 128 bytes, so these must leave room for a VLAN tag and a fragment header.
///
/// # Errors
/// [`DropReason::Oversize`] or [`DropReason::BadOffload`].
pub(crate) fn admit(head: &[u8], len: usize, mut offload: Offload) -> Result<(Offload, usize), DropReason> {
    if len > MAX_FRAME {
        return Err(DropReason::Oversize);
    }
    let segments = segments(head, len, &mut offload).ok_or(DropReason::BadOffload)?;
    Ok((offload, segments))
}

/// The number of segments of a frame, or `None` if the frame contradicts its offload.
fn segments(head: &[u8], len: usize, offload: &mut Offload) -> Option<usize> {
    let field = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
    if !offload.needs_csum || field + 2 > len {
        return None;
    }
    let Some(headers) = outermost(head, offload) else {
        // A tunnel around one segment.
        let is_behind = end_of_judged(head).is_some_and(|end| end <= field) && field + 2 <= MOST_BEFORE_CHECKSUM;
        // Kernels refuse frames whose checksum begins in front of where a transport header can begin.
        let is_behind = is_behind && usize::from(offload.csum_start) >= FIRST_TRANSPORT;
        offload.hdr_len = 0;
        return (is_behind && offload.gso == Gso::None).then_some(1);
    };
    if offload.gso == Gso::None {
        offload.hdr_len = 0;
        return Some(1);
    }
    let found = SegmentableHeaders::find(head).filter(|found| found.end <= len && headers.supports(offload.gso))?;
    let inserted = found.inserted(offload.gso);
    if found.end + inserted + TAG_BYTES > HEAD_BYTES {
        return None;
    }
    let (first, size) = cut(&found, offload);
    // The length that an IP header's field must hold: the longest piece, and for fragments also the whole datagram,
    // which the receiver reassembles.
    let longest = match offload.gso {
        Gso::Udp4Frag => len.max(len.min(first + size) + inserted),
        _ => len.min(first + size),
    };
    let ip_bytes = longest.checked_sub(found.ip + if found.v6 { IPV6_BYTES } else { 0 })?;
    offload.hdr_len = found.end as u16;
    count(len.checked_sub(first)?, size).filter(|_| ip_bytes <= MOST_IP_BYTES)
}

/// The number of segments of a payload of `bytes` bytes, rounded up, or `None` if there are too many.
pub(super) fn count(bytes: usize, size: usize) -> Option<usize> {
    let whole = bytes.checked_div(size)?;
    (whole < MAX_SEGMENTS).then_some(whole + 1)
}
