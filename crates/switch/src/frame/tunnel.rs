//! The headers of frames that hold a packet in a UDP tunnel, such as VXLAN or Geneve, and that the receiver has to segment.

use ringway_abi::offload::{Gso, Offload, Tunnel};
use ringway_memory::HEAD_BYTES;

use super::drop_reason::DropReason;
use super::headers::{
    ETHERNET, Headers, IPV6_BYTES, MAX_FRAME, MOST_IP_BYTES, SegmentableHeaders, TAG_BYTES, UDP, UDP_BYTES, count,
};

/// Most bytes of all headers: those of Geneve over IPv6 with all its options, around TCP over IPv6 with all its options, take 448.
pub(crate) const MOST_HEADERS: usize = 512;

/// Finds the headers of the tunnel and of the packet in it in the first bytes of a frame. Returns `None` if they contradict the offload.
pub(crate) fn find(head: &[u8], offload: &Offload, tunnel: Tunnel) -> Option<(Headers, SegmentableHeaders)> {
    let outer = Headers::read(head.get(..HEAD_BYTES).unwrap_or(head))?;
    let inner = Headers::read_packet(head, tunnel.inner_ip.into())?;
    let is_tunnel = outer.protocol == UDP && !outer.fragment && outer.v6 == tunnel.v6;
    let is_there = usize::from(tunnel.udp) == outer.transport && inner.ip >= outer.transport + UDP_BYTES;
    let is_segmentable = inner.matches_checksum(head, offload) && inner.supports(offload.gso);
    if !is_tunnel || !is_there || !is_segmentable || offload.gso == Gso::Udp4Frag {
        return None;
    }
    SegmentableHeaders::of(head, inner).map(|inner| (outer, inner))
}

/// Checks the offload of a frame of `len` bytes whose segments are in a tunnel, as [`super::headers::admit`] does. `head` is its first
/// [`MOST_HEADERS`] bytes.
///
/// # Errors
/// [`DropReason::Oversize`] or [`DropReason::BadOffload`].
pub(crate) fn admit(head: &[u8], len: usize, offload: Offload, tunnel: Tunnel) -> Result<(Offload, usize), DropReason> {
    if len > MAX_FRAME {
        return Err(DropReason::Oversize);
    }
    segments(head, len, offload, tunnel).ok_or(DropReason::BadOffload)
}

fn segments(head: &[u8], len: usize, offload: Offload, tunnel: Tunnel) -> Option<(Offload, usize)> {
    let (tunnel, outer, inner) = locate(head, &offload, tunnel)?;
    let payload = len.checked_sub(inner.end)?;
    // A receiver's tag may come before all of them, and what policy reads has to have the tunnel's UDP header then, too.
    let has_room = inner.end + TAG_BYTES <= MOST_HEADERS && outer.transport + UDP_BYTES + TAG_BYTES <= HEAD_BYTES;
    if !offload.needs_csum || !has_room {
        return None;
    }
    let size = usize::from(offload.gso_size);
    let ip_bytes = (inner.end + payload.min(size)).checked_sub(outer.ip + if outer.v6 { IPV6_BYTES } else { 0 })?;
    let segments = count(payload, size).filter(|_| ip_bytes <= MOST_IP_BYTES)?;
    Some((Offload { hdr_len: inner.end as u16, tunnel: Some(tunnel), ..offload }, segments))
}

/// Finds the headers where they are. Linux (6.18) counts the tunnel's places without a VLAN tag that it writes into the frame, and takes the tag's
/// type for the version of the outer header.
fn locate(head: &[u8], offload: &Offload, told: Tunnel) -> Option<(Tunnel, Headers, SegmentableHeaders)> {
    let outer = Headers::read(head.get(..HEAD_BYTES).unwrap_or(head))?;
    let udp = u16::try_from(outer.transport).ok()?;
    let at = |inner_ip| {
        let tunnel = Tunnel { v6: outer.v6, udp, inner_ip, ..told };
        find(head, offload, tunnel).map(|(outer, inner)| (tunnel, outer, inner))
    };
    let behind_tag = || at(told.inner_ip.checked_add(TAG_BYTES as u16).filter(|_| outer.ip > ETHERNET)?);
    let found = at(told.inner_ip).or_else(behind_tag)?;
    // Segmentation writes what the sender says to be the packet's headers. Where the tunnel's own header says where the packet is, it is there.
    let is_another = |packet: &Headers| packet.ip != found.2.ip || packet.transport != found.2.transport;
    if outer.inner(head).as_ref().is_some_and(is_another) { None } else { Some(found) }
}
