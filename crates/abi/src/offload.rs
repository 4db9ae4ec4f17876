//! The offload header: checksum and segmentation requests of a frame, `struct virtio_net_hdr` (virtio 1.3, 5.1.6).
//!
//! On a port attached with [`crate::Shape::offload`], every frame begins with [`PREFIX_BYTES`]: this header and two bytes
//! without meaning, virtio's `num_buffers`.

/// Bytes before a frame, in both directions.
pub const PREFIX_BYTES: usize = 12;

const NEEDS_CSUM: u8 = 1;
const TUNNEL_CSUM: u8 = 8;
const TUNNEL_IPV4: u8 = 0x20;
const TUNNEL_IPV6: u8 = 0x40;
const ECN: u8 = 0x80;

/// What remains to be done before a frame can go onto a wire: `struct virtio_net_hdr` (virtio 1.3, 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The ones' complement sum from `csum_start` to the end goes `csum_offset` bytes after `csum_start`, where the
    /// sum of the pseudo-header is now.
    pub needs_csum: bool,
    /// The kind of segmentation.
    pub gso: Gso,
    /// A TCP frame that reports congestion: only its first segment has CWR set.
    pub ecn: bool,
    /// Bytes of all headers of a frame to be segmented, as found by the switch; otherwise 0.
    pub hdr_len: u16,
    /// Most bytes of a segment after its headers, or of a fragment after its IP header.
    pub gso_size: u16,
    /// Offset in the frame at which the summed bytes begin.
    pub csum_start: u16,
    /// Offset of the checksum, from `csum_start`.
    pub csum_offset: u16,
    /// The UDP tunnel around the packet to be segmented. Only [`Offload::decode_tunnelled`] and [`Offload::encode_tunnelled`] carry it.
    pub tunnel: Option<Tunnel>,
}

/// A UDP tunnel, such as VXLAN or Geneve, around a packet that the receiver has to segment. The receiver puts the tunnel's headers in front of
/// each segment (virtio 1.4, 5.1.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// True if the tunnel is over IPv6, false if it is over IPv4.
    pub v6: bool,
    /// The tunnel's UDP header has a checksum in each segment. The frame has the sum of the tunnel's pseudo-header there.
    pub csum: bool,
    /// Offset in the frame of the tunnel's UDP header.
    pub udp: u16,
    /// Offset in the frame of the IP header within the tunnel.
    pub inner_ip: u16,
}

/// Kinds of segmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// No segmentation.
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
    /// Bytes of `struct virtio_net_hdr` without `num_buffers`.
    pub const BYTES: usize = 10;
    /// Bytes of `struct virtio_net_hdr_v1_hash_tunnel` (Linux 6.17; virtio 1.4, 5.1.6).
    pub const TUNNELLED_BYTES: usize = 24;

    /// Decodes a sender's header that can tell of a tunnel.
    ///
    /// # Errors
    /// As of [`Offload::decode`]; or the tunnel is of both kinds, or of neither, or holds nothing to be segmented into TCP or UDP.
    #[inline]
    pub fn decode_tunnelled(header: &[u8; Self::TUNNELLED_BYTES]) -> Result<Option<Offload>, BadOffload> {
        let [mut plain @ .., _, _, _, _, _, _, _, _, _, _, udp0, udp1, ip0, ip1] = *header;
        let kind = plain[1] & (TUNNEL_IPV4 | TUNNEL_IPV6);
        plain[1] &= !kind;
        let offload = Self::decode(&plain)?;
        if kind == 0 {
            return Ok(offload);
        }
        let inner = offload
            .filter(|inner| kind != TUNNEL_IPV4 | TUNNEL_IPV6 && !matches!(inner.gso, Gso::None | Gso::Udp4Frag));
        let tunnel = Tunnel {
            v6: kind == TUNNEL_IPV6,
            csum: plain[0] & TUNNEL_CSUM != 0,
            udp: u16::from_le_bytes([udp0, udp1]),
            inner_ip: u16::from_le_bytes([ip0, ip1]),
        };
        inner.map(|inner| Some(Offload { tunnel: Some(tunnel), ..inner })).ok_or(BadOffload)
    }

    /// Encodes a header that requests this offload, and can tell of a tunnel; all zeroes for `None`.
    #[inline]
    #[must_use]
    pub fn encode_tunnelled(offload: Option<&Offload>) -> [u8; Self::TUNNELLED_BYTES] {
        let mut header = [0; Self::TUNNELLED_BYTES];
        header[..Self::BYTES].copy_from_slice(&Self::encode(offload));
        if let Some(tunnel) = offload.and_then(|offload| offload.tunnel) {
            header[0] |= if tunnel.csum { TUNNEL_CSUM } else { 0 };
            header[20..22].copy_from_slice(&tunnel.udp.to_le_bytes());
            header[22..].copy_from_slice(&tunnel.inner_ip.to_le_bytes());
        }
        header
    }

    /// Decodes a sender's header. Returns `None` when it requests nothing. Ignores unknown flags, and `hdr_len`, which
    /// is unreliable (virtio 1.3, 5.1.6.2.2).
    ///
    /// # Errors
    /// The kind of segmentation is unknown, or has no size or no `NEEDS_CSUM`; or the ECN bit is set without TCP.
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
        Ok(Some(Offload { needs_csum: true, gso, ecn, hdr_len: 0, gso_size, csum_start, csum_offset, tunnel: None }))
    }

    /// Encodes a header that requests this offload; all zeroes for `None`. This header has no place for a tunnel: a receiver refuses one that
    /// requests it.
    #[inline]
    #[must_use]
    pub fn encode(offload: Option<&Offload>) -> [u8; Self::BYTES] {
        let Some(offload) = offload else { return [0; Self::BYTES] };
        let tunnel = offload.tunnel.map_or(0, |tunnel| if tunnel.v6 { TUNNEL_IPV6 } else { TUNNEL_IPV4 });
        let kind = offload.gso.number() | tunnel | if offload.ecn { ECN } else { 0 };
        let [[a, b], [c, d], [e, f], [g, h]] =
            [offload.hdr_len, offload.gso_size, offload.csum_start, offload.csum_offset].map(u16::to_le_bytes);
        [u8::from(offload.needs_csum), kind, a, b, c, d, e, f, g, h]
    }
}

impl Gso {
    /// The value of `VIRTIO_NET_HDR_GSO_*`.
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

#[cfg(test)]
mod tests {
    use super::*;

    const TCP4: Offload = Offload {
        needs_csum: true,
        gso: Gso::Tcp4,
        ecn: false,
        hdr_len: 54,
        gso_size: 100,
        csum_start: 34,
        csum_offset: 16,
        tunnel: None,
    };
    const IN_TUNNEL: Offload = Offload {
        csum_start: 84,
        hdr_len: 104,
        tunnel: Some(Tunnel { v6: false, csum: true, udp: 34, inner_ip: 64 }),
        ..TCP4
    };

    #[test]
    fn a_header_tells_of_a_tunnel_and_one_that_cannot_is_refused() {
        for (v6, csum, gso) in [(false, false, Gso::Tcp4), (true, true, Gso::Tcp6), (false, true, Gso::UdpL4)] {
            let offload = Offload { gso, tunnel: Some(Tunnel { v6, csum, udp: 34, inner_ip: 64 }), ..IN_TUNNEL };
            let header = Offload::encode_tunnelled(Some(&offload));
            assert_eq!(Offload::decode_tunnelled(&header), Ok(Some(Offload { hdr_len: 0, ..offload })));
            assert_eq!(Offload::decode(&Offload::encode(Some(&offload))), Err(BadOffload));
        }
        for plain in [None, Some(TCP4)] {
            let header = Offload::encode_tunnelled(plain.as_ref());
            assert_eq!(header[..Offload::BYTES], Offload::encode(plain.as_ref()));
            let decoded = Offload::decode_tunnelled(&header);
            assert_eq!(decoded, Ok(plain.map(|plain| Offload { hdr_len: 0, ..plain })));
        }
        let good = Offload::encode_tunnelled(Some(&IN_TUNNEL));
        assert_eq!(good[..10], [1 | 8, 1 | 0x20, 104, 0, 100, 0, 84, 0, 16, 0]);
        assert_eq!(good[10..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 34, 0, 64, 0]);
        let refused = |at: usize, byte: u8| {
            let mut header = good;
            header[at] = byte;
            Offload::decode_tunnelled(&header).is_err()
        };
        assert!(refused(1, 0x61), "over both");
        assert!(refused(1, 0x20) && refused(1, 0x23), "nothing to be segmented, or to be fragmented");
        assert!(refused(0, 8), "no checksum within");
    }

    #[test]
    fn a_header_comes_back_as_it_was_written_but_for_its_length() {
        for gso in [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp4Frag, Gso::UdpL4] {
            let gso_size = if gso == Gso::None { 0 } else { 1448 };
            let offload = Offload { gso, gso_size, ecn: gso == Gso::Tcp6, ..TCP4 };
            let header = Offload::encode(Some(&offload));
            assert_eq!(Offload::decode(&header), Ok(Some(Offload { hdr_len: 0, ..offload })), "{header:?}");
        }
        assert_eq!(Offload::decode(&Offload::encode(None)), Ok(None));
        assert_eq!(Offload::encode(Some(&TCP4)), [1, 1, 54, 0, 100, 0, 34, 0, 16, 0]);
    }

    #[test]
    fn flags_of_later_versions_and_fields_without_meaning_are_ignored() {
        assert_eq!(Offload::decode(&[0xfe, 0, 9, 9, 9, 9, 9, 9, 9, 9]), Ok(None));
        let header = Offload::decode(&[0xff, 0, 9, 9, 9, 9, 14, 0, 2, 0]);
        assert_eq!(
            header,
            Ok(Some(Offload { needs_csum: true, csum_start: 14, csum_offset: 2, ..Offload::default() }))
        );
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused() {
        let good: [u8; Offload::BYTES] = Offload::encode(Some(&TCP4));
        let with = |changes: &[(usize, u8)]| {
            let mut header = good;
            changes.iter().for_each(|&(at, byte)| header[at] = byte);
            Offload::decode(&header).is_err()
        };
        assert!(!with(&[]));
        assert!(with(&[(0, 0)]), "segmentation without a checksum");
        assert!(with(&[(4, 0)]), "segments of no bytes");
        assert!(with(&[(1, 0x80)]) && with(&[(1, 0x83)]) && with(&[(1, 0x85)]), "ECN without TCP");
        for unknown in (0..=0x7f).filter(|kind| ![0, 1, 3, 4, 5].contains(kind)) {
            assert!(with(&[(1, unknown)]), "kind {unknown}");
        }
    }
}
