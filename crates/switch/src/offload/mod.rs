//! Work that a sender left to whoever comes after it: checksums and segmentation (virtio 1.3, 5.1.6.2; VPE §4.6).
//!
//! A frame with an [`Offload`] goes unchanged to an output that [`Accepts`] it; for any other it is finished here. Segments
//! have headers of their own and share the source's memory for the rest, which is read once more for its checksum.

mod accepts;
mod finish;
mod headers;
mod segment;
mod sum;

#[cfg(test)]
mod finish_tests;
#[cfg(test)]
mod header_tests;
#[cfg(test)]
mod samples;

pub use accepts::Accepts;
pub(crate) use finish::Finisher;
pub(crate) use headers::admit;

const NEEDS_CSUM: u8 = 1;
const ECN: u8 = 0x80;

/// What is to be done with a frame before it is one of the wire: `struct virtio_net_hdr` (virtio 1.3, 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The ones' complement sum from `csum_start` to the end goes `csum_offset` bytes after `csum_start`, where the sum of
    /// the pseudo header stands now.
    pub needs_csum: bool,
    /// What the frame is to be cut into.
    pub gso: Gso,
    /// A TCP frame that reports congestion: only its first segment has CWR.
    pub ecn: bool,
    /// Bytes of all headers of a frame to be cut, as [`crate::Batch`] found them; 0 otherwise.
    pub hdr_len: u16,
    /// Most bytes of a segment after its headers; of a fragment, after its IP header.
    pub gso_size: u16,
    /// Where the sum begins, from the beginning of the frame.
    pub csum_start: u16,
    /// Where the sum goes, from `csum_start`.
    pub csum_offset: u16,
}

/// Kinds of segmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// None.
    #[default]
    None,
    /// TCP over IPv4 (TSO4).
    Tcp4,
    /// TCP over IPv6 (TSO6).
    Tcp6,
    /// UDP over IPv4 or IPv6, into IP fragments (UFO).
    Udp4Frag,
    /// UDP over IPv4 or IPv6, into datagrams (USO).
    UdpL4,
}

/// A header that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOffload;

impl Offload {
    /// Bytes of `struct virtio_net_hdr` up to and without `num_buffers`.
    pub const BYTES: usize = 10;

    /// Reads a sender's header; `None` when it asks for nothing. Unknown flags are ignored, and so is `hdr_len`, which
    /// is not to be relied on (virtio 1.3, 5.1.6.2.2).
    ///
    /// # Errors
    /// The kind of segmentation is unknown, or without a size or `NEEDS_CSUM`; or the ECN bit is set without TCP.
    #[inline]
    pub fn decode(header: &[u8; Self::BYTES]) -> Result<Option<Offload>, BadOffload> {
        if header[0] & NEEDS_CSUM == 0 && header[1] == 0 {
            return Ok(None);
        }
        let [flags, kind, _, _, ref numbers @ ..] = *header;
        let number = |at: usize| u16::from_le_bytes([numbers[at], numbers[at + 1]]);
        let (gso, ecn) = (Gso::from_number(kind & !ECN).ok_or(BadOffload)?, kind & ECN != 0);
        let gso_size = if gso == Gso::None { 0 } else { number(0) };
        if flags & NEEDS_CSUM == 0
            || (gso != Gso::None && gso_size == 0)
            || (ecn && !matches!(gso, Gso::Tcp4 | Gso::Tcp6))
        {
            return Err(BadOffload);
        }
        let (csum_start, csum_offset) = (number(2), number(4));
        Ok(Some(Offload { needs_csum: true, gso, ecn, hdr_len: 0, gso_size, csum_start, csum_offset }))
    }

    /// The header that asks for this; all zeroes for `None`.
    #[inline]
    #[must_use]
    pub fn encode(offload: Option<&Offload>) -> [u8; Self::BYTES] {
        let Some(offload) = offload else { return [0; Self::BYTES] };
        let kind = offload.gso.number() | if offload.ecn { ECN } else { 0 };
        let [[a, b], [c, d], [e, f], [g, h]] =
            [offload.hdr_len, offload.gso_size, offload.csum_start, offload.csum_offset].map(u16::to_le_bytes);
        [u8::from(offload.needs_csum), kind, a, b, c, d, e, f, g, h]
    }

    /// What a receiver must accept to be given the frame as it is.
    #[inline]
    #[must_use]
    pub fn needs(&self) -> Accepts {
        let csum = if self.needs_csum { Accepts::CSUM } else { Accepts::NOTHING };
        let ecn = if self.ecn { Accepts::ECN } else { Accepts::NOTHING };
        csum | ecn
            | match self.gso {
                Gso::None => Accepts::NOTHING,
                Gso::Tcp4 => Accepts::TSO4,
                Gso::Tcp6 => Accepts::TSO6,
                Gso::Udp4Frag => Accepts::UFO,
                Gso::UdpL4 => Accepts::USO,
            }
    }
}

impl Gso {
    /// `VIRTIO_NET_HDR_GSO_*`.
    const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Tcp4 => 1,
            Self::Udp4Frag => 3,
            Self::Tcp6 => 4,
            Self::UdpL4 => 5,
        }
    }

    const fn from_number(number: u8) -> Option<Gso> {
        Some(match number {
            0 => Self::None,
            1 => Self::Tcp4,
            3 => Self::Udp4Frag,
            4 => Self::Tcp6,
            5 => Self::UdpL4,
            _ => return None,
        })
    }
}
