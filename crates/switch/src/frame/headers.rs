//! Whether a frame is what its offload says.

use ringway_abi::offload::{Gso, Offload};
use ringway_memory::HEAD_BYTES;

use super::class::is_tag;
use super::drop_reason::DropReason;

/// Longest frame with an offload: an Ethernet header, an IPv6 header and 65,535 bytes (virtio 1.3, 5.1.6.3).
pub const MAX_FRAME: usize = 65_589;
/// Most segments of one frame: 64 bytes each make 64 KiB. Fewer bytes would make one frame cost more than a batch.
pub(crate) const MAX_SEGMENTS: usize = 1024;

const ETHERNET: usize = 14;
/// Bytes of the tag that a frame may get before it is cut.
const TAG_BYTES: usize = 4;
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const UDP_BYTES: usize = 8;
/// Bytes of the header that an IPv6 fragment has more than the datagram (RFC 8200, 4.5).
pub(crate) const FRAGMENT_BYTES: usize = 8;
/// Hop-by-hop options, routing and destination options (RFC 8200, 4.1).
const EXTENSIONS: [u8; 3] = [0, 43, 60];

/// Where a frame's outermost IP header is, and the header of what it carries: the reading that the guard judges by
/// (`policy/guard/claims.rs`), as far as senders leave work undone there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Beginning of the IP header.
    pub ip: usize,
    /// IPv6 rather than IPv4.
    pub v6: bool,
    /// Beginning of the header behind it and its extensions, perhaps behind the bytes that were read.
    pub transport: usize,
    /// What that is, by its number.
    pub protocol: u8,
    /// A part of an IPv4 datagram: what is behind its header may be anything.
    pub fragment: bool,
    /// Where the byte is that names the protocol.
    next_header: usize,
}

fn byte(head: &[u8], at: usize) -> Option<u8> {
    head.get(at).copied()
}

fn word(head: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([byte(head, at)?, byte(head, at + 1)?]))
}

impl Headers {
    /// Reads the first bytes of a frame: IP behind any VLAN tags. `None` when it is something else, or the chain of its headers is
    /// not all there. That of an IPv6 fragment ends at its fragment header.
    #[must_use]
    pub fn read(head: &[u8]) -> Option<Headers> {
        let mut ip = ETHERNET;
        let mut kind = word(head, ip - 2)?;
        while is_tag(kind) {
            ip += TAG_BYTES;
            kind = word(head, ip - 2)?;
        }
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

    /// Where in the transport header its own checksum is, for the protocols whose checksum senders leave undone: the ones'
    /// complement sum from the header's beginning to the frame's end. `head` is what was read.
    #[must_use]
    pub fn checksum_offset(&self, head: &[u8]) -> Option<usize> {
        match self.protocol {
            _ if self.fragment => None,
            TCP => Some(16),
            UDP => Some(6),
            // It has the field if it says so (RFC 2784, 2.1).
            GRE if byte(head, self.transport)? & 0x80 != 0 => Some(4),
            _ => None,
        }
    }

    /// Whether this is where an offload's sum begins, and where it goes.
    fn have_sum(&self, head: &[u8], offload: &Offload) -> bool {
        usize::from(offload.csum_start) == self.transport
            && self.checksum_offset(head) == Some(offload.csum_offset.into())
    }

    /// The end of a TCP or UDP header that is all in `head`.
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

    /// Whether the kind of segmentation is this protocol's.
    fn fit(&self, gso: Gso) -> bool {
        matches!(
            (gso, self.protocol, self.v6),
            (Gso::Tcp4, TCP, false) | (Gso::Tcp6, TCP, true) | (Gso::Udp4Frag | Gso::UdpL4, UDP, _)
        )
    }
}

/// What the code that cuts a frame needs to know of its headers, which are all in its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cuttable {
    pub(crate) ip: usize,
    pub(crate) v6: bool,
    pub(crate) transport: usize,
    pub(crate) protocol: u8,
    pub(crate) next_header: usize,
    /// End of the TCP or UDP header.
    pub(crate) end: usize,
}

impl Cuttable {
    /// Finds TCP or UDP over IP; `None` when it is something else, an IP fragment, or its headers do not end in `head`, the first
    /// bytes of a frame.
    pub(crate) fn find(head: &[u8]) -> Option<Cuttable> {
        let headers = Headers::read(head)?;
        let Headers { ip, v6, transport, protocol, next_header, .. } = headers;
        Some(Cuttable { ip, v6, transport, protocol, next_header, end: headers.end(head)? })
    }

    /// Bytes that each piece of the frame has more than its headers: the header that says that it is a fragment.
    fn inserted(&self, gso: Gso) -> usize {
        if self.v6 && gso == Gso::Udp4Frag { FRAGMENT_BYTES } else { 0 }
    }
}

/// From where on a frame is cut, and into how many bytes each.
pub(crate) fn cut(headers: &Cuttable, offload: &Offload) -> (usize, usize) {
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
    let Some(headers) = Cuttable::find(head).filter(|_| offload.gso != Gso::None) else { return (1, 0) };
    let (first, size) = cut(&headers, offload);
    let frames = len.saturating_sub(first).div_ceil(size.max(1)).max(1);
    (frames as u64, ((frames - 1) * first + frames * headers.inserted(offload.gso)) as u64)
}

/// The offload of a frame of `len` bytes that begins with `head`, its `hdr_len` made true, and the number of segments. For every
/// kind of port this decides what may be left undone.
///
/// A sum may only go into the own checksum field of the outermost transport header: what it makes of that field the sender
/// chooses, and anywhere else it would change what policy has judged. Whoever cuts the frame builds the headers of each piece in
/// a head of as many bytes: so much room there must be for what a VLAN tag and a fragment header add.
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

/// How many frames one becomes; `None`: it is not what its offload says.
fn segments(head: &[u8], len: usize, offload: &mut Offload) -> Option<usize> {
    let headers = Headers::read(head)?;
    let field = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
    if !offload.needs_csum || !headers.have_sum(head, offload) || field + 2 > len {
        return None;
    }
    if offload.gso == Gso::None {
        offload.hdr_len = 0;
        return Some(1);
    }
    let found = Cuttable::find(head).filter(|found| found.end <= len && headers.fit(offload.gso))?;
    let inserted = found.inserted(offload.gso);
    if found.end + inserted + TAG_BYTES > HEAD_BYTES {
        return None;
    }
    let (first, size) = cut(&found, offload);
    // What an IP header must be able to say is long: that of each piece, and of fragments that of the whole, too, which is put
    // together again.
    let longest = match offload.gso {
        Gso::Udp4Frag => len.max(len.min(first + size) + inserted),
        _ => len.min(first + size),
    };
    let ip_bytes = longest.checked_sub(found.ip + if found.v6 { IPV6_BYTES } else { 0 })?;
    let whole = len.checked_sub(first)?.checked_div(size)?;
    offload.hdr_len = found.end as u16;
    (whole < MAX_SEGMENTS && ip_bytes <= 0xffff).then_some(whole + 1)
}
