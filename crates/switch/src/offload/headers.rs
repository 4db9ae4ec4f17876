//! Whether a frame is what its offload says.

use ringway_memory::HEAD_BYTES;

use super::segment::FRAGMENT_BYTES;
use super::{Gso, Offload};
use crate::counters::DropReason;

/// Longest frame with an offload: an Ethernet header, an IPv6 header and 65,535 bytes (virtio 1.3, 5.1.6.3).
pub const MAX_FRAME: usize = 65_589;
/// Most segments of one frame: 64 bytes each make 64 KiB. Fewer bytes would make one frame cost more than a batch.
pub(crate) const MAX_SEGMENTS: usize = 1024;

const ETHERNET: usize = 14;
const MAX_TAGS: usize = 2;
pub(super) const IPV6_BYTES: usize = 40;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const UDP_BYTES: usize = 8;
/// Hop-by-hop options, routing and destination options (RFC 8200, 4.1).
const EXTENSIONS: [u8; 3] = [0, 43, 60];

/// Where the headers of a frame are, all inside its first 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    /// Beginning of the IP header.
    pub(super) ip: usize,
    pub(super) v6: bool,
    /// Beginning of the TCP or UDP header.
    pub(super) transport: usize,
    pub(super) protocol: u8,
    /// Where the byte is that names the transport.
    pub(super) next_header: usize,
    /// End of the TCP or UDP header.
    pub(super) end: usize,
}

fn byte(head: &[u8; HEAD_BYTES], at: usize) -> Option<u8> {
    head.get(at).copied()
}

fn word(head: &[u8; HEAD_BYTES], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([byte(head, at)?, byte(head, at + 1)?]))
}

impl Headers {
    /// Finds TCP or UDP over IP behind up to two VLAN tags; `None` when it is something else, an IP fragment, or its
    /// headers do not end in the first 128 bytes.
    pub(super) fn find(head: &[u8; HEAD_BYTES]) -> Option<Headers> {
        let mut ip = ETHERNET;
        let mut kind = word(head, ip - 2)?;
        while VLAN.contains(&kind) && ip < ETHERNET + 4 * MAX_TAGS {
            ip += 4;
            kind = word(head, ip - 2)?;
        }
        let version = byte(head, ip)? >> 4;
        let (mut next_header, mut transport) = match (kind, version) {
            (IPV4, 4) => {
                let words = usize::from(byte(head, ip)? & 15);
                let fragment = word(head, ip + 6)? & 0x3fff != 0;
                if words < 5 || fragment {
                    return None;
                }
                (ip + 9, ip + words * 4)
            }
            (IPV6, 6) => (ip + 6, ip + IPV6_BYTES),
            _ => return None,
        };
        let v6 = kind == IPV6;
        while v6 && EXTENSIONS.contains(&byte(head, next_header)?) {
            next_header = transport;
            transport += (usize::from(byte(head, transport + 1)?) + 1) * 8;
        }
        let protocol = byte(head, next_header)?;
        let end = match protocol {
            UDP => transport + UDP_BYTES,
            TCP => match usize::from(byte(head, transport + 12)? >> 4) {
                words @ 5.. => transport + words * 4,
                _ => return None,
            },
            _ => return None,
        };
        (end <= HEAD_BYTES).then_some(Headers { ip, v6, transport, protocol, next_header, end })
    }

    /// Whether the offload's kind and sum are this protocol's.
    fn fit(&self, offload: &Offload) -> bool {
        let field = match (offload.gso, self.protocol, self.v6) {
            (Gso::Tcp4, TCP, false) | (Gso::Tcp6, TCP, true) => 16,
            (Gso::Udp4Frag | Gso::UdpL4, UDP, _) => 6,
            _ => return false,
        };
        offload.needs_csum
            && usize::from(offload.csum_start) == self.transport
            && usize::from(offload.csum_offset) == field
    }
}

/// From where on a frame is cut, and into how many bytes each.
pub(super) fn cut(headers: &Headers, offload: &Offload) -> (usize, usize) {
    match offload.gso {
        // Fragments begin at multiples of 8 bytes.
        Gso::Udp4Frag => (headers.transport, usize::from(offload.gso_size) & !7),
        _ => (headers.end, offload.gso_size.into()),
    }
}

/// Frames that one of `len` bytes becomes on a wire, which was admitted with this offload and begins with `head`; and the bytes of
/// the headers that all but one of them have besides.
#[cold]
pub(crate) fn on_a_wire(head: &[u8; HEAD_BYTES], len: usize, offload: &Offload) -> (u64, u64) {
    let Some(headers) = Headers::find(head).filter(|_| offload.gso != Gso::None) else { return (1, 0) };
    let (first, size) = cut(&headers, offload);
    let frames = len.saturating_sub(first).div_ceil(size.max(1)).max(1);
    // The header that says that it is a fragment the whole does not have.
    let fragment = if headers.v6 && offload.gso == Gso::Udp4Frag { FRAGMENT_BYTES } else { 0 };
    (frames as u64, ((frames - 1) * first + frames * fragment) as u64)
}

/// The offload of a frame of `len` bytes that begins with `head`, its `hdr_len` made true, and the number of segments.
///
/// # Errors
/// [`DropReason::Oversize`] or [`DropReason::BadOffload`].
pub(crate) fn admit(head: &[u8; HEAD_BYTES], len: usize, mut offload: Offload) -> Result<(Offload, usize), DropReason> {
    if len > MAX_FRAME {
        return Err(DropReason::Oversize);
    }
    let start = usize::from(offload.csum_start);
    if offload.needs_csum && (start < ETHERNET || start + usize::from(offload.csum_offset) + 2 > len) {
        return Err(DropReason::BadOffload);
    }
    if offload.gso == Gso::None {
        offload.hdr_len = 0;
        return Ok((offload, 1));
    }
    let headers = Headers::find(head).filter(|found| found.end <= len && found.fit(&offload));
    let headers = headers.ok_or(DropReason::BadOffload)?;
    let (first, size) = cut(&headers, &offload);
    // What an IP header must be able to say is long; of fragments it is the whole that must come together again.
    let longest = match offload.gso {
        Gso::Udp4Frag => len,
        _ => len.min(first + size),
    };
    let ip_bytes = longest - headers.ip - if headers.v6 { IPV6_BYTES } else { 0 };
    match (len - first).checked_div(size) {
        Some(whole) if whole < MAX_SEGMENTS && ip_bytes <= 0xffff => {
            offload.hdr_len = headers.end as u16;
            Ok((offload, whole + 1))
        }
        _ => Err(DropReason::BadOffload),
    }
}
