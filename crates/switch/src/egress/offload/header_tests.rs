//! Tests of which headers and which frames are accepted.

use ringway_memory::Mapping;

use super::tunnel_tests::InTunnel;
use crate::testing::{Plan, frame, mac};
use crate::{Accepts, Gso, Offload};
use crate::{BatchStorage, DropReason, Tunnel};

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

#[test]
fn a_receiver_is_given_only_what_it_accepts_all_of() {
    assert!(Accepts::EVERYTHING.covers(&TCP4));
    assert!((Accepts::CSUM | Accepts::TSO4).covers(&TCP4));
    assert!(!Accepts::TSO4.covers(&TCP4) && !Accepts::CSUM.covers(&TCP4) && !Accepts::NOTHING.covers(&TCP4));
    let ecn = Offload { ecn: true, ..TCP4 };
    assert!(!(Accepts::CSUM | Accepts::TSO4).covers(&ecn));
    assert!((Accepts::CSUM | Accepts::TSO4 | Accepts::ECN).covers(&ecn));
}

/// A TCP segment over IPv4 without options.
fn tcp4(len: usize) -> Vec<u8> {
    let mut bytes = frame(mac(1), mac(0), len, 7);
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
    bytes[46] = 0x50;
    bytes
}

/// The result for a frame with this offload.
fn pushed(bytes: &[u8], offload: Offload) -> Result<Offload, DropReason> {
    let memory = Mapping::private(bytes.len().max(1)).expect("memory");
    assert!(memory.whole().write(bytes));
    let mut batch = BatchStorage::new(4).into_batch();
    batch.push_offloaded(memory.view(0, bytes.len()).expect("inside"), bytes.len(), offload);
    let whole = batch.len();
    let refused = batch.refused().next();
    batch.push_pieces_offloaded(
        bytes.chunks(40.max(bytes.len() / 100)).scan(0, |at, piece| {
            *at += piece.len();
            memory.view(*at - piece.len(), piece.len())
        }),
        offload,
    );
    assert_eq!(batch.len(), 2 * whole, "in pieces as in one");
    match refused {
        Some((reason, _)) => {
            assert_eq!(batch.bytes(), 0);
            Err(reason)
        }
        None => Ok(*batch.frame(1).offload().expect("it was given")),
    }
}

#[test]
fn a_frame_that_is_what_its_offload_says_is_taken_and_its_headers_measured() {
    assert_eq!(pushed(&tcp4(1514), Offload { hdr_len: 9, ..TCP4 }), Ok(TCP4));
    assert_eq!(pushed(&tcp4(54), TCP4), Ok(TCP4), "headers alone");
    let csum = Offload { gso: Gso::None, gso_size: 0, ..TCP4 };
    assert_eq!(pushed(&tcp4(60), csum), Ok(Offload { hdr_len: 0, ..csum }));
}

#[test]
fn a_frame_that_is_not_what_its_offload_says_is_refused_by_name() {
    let refused = |bytes: &[u8], offload| assert_eq!(pushed(bytes, offload), Err(DropReason::BadOffload));
    for (csum_start, csum_offset) in
        [(13, 1), (0, 0), (60, 0), (58, 1), (34, 25), (65_535, 65_535), (14, 65_535), (34, 6)]
    {
        refused(&tcp4(60), Offload { needs_csum: true, csum_start, csum_offset, ..Offload::default() });
    }
    refused(&tcp4(1514), Offload { csum_start: 35, ..TCP4 });
    refused(&tcp4(1514), Offload { csum_offset: 6, ..TCP4 });
    refused(&tcp4(1514), Offload { gso_size: 0, ..TCP4 });
    refused(&tcp4(1514), Offload { gso_size: 1, ..TCP4 });
    refused(&tcp4(1514), Offload { needs_csum: false, ..TCP4 });
    refused(&tcp4(53), TCP4);
    // A segment longer than the IP header's length field can hold.
    refused(&tcp4(65_589), Offload { gso_size: 65_535, ..TCP4 });
    assert_eq!(pushed(&tcp4(65_589), TCP4), Ok(TCP4));
    for gso in [Gso::Tcp6, Gso::Udp4Frag, Gso::UdpL4] {
        refused(&tcp4(1514), Offload { gso, ..TCP4 });
    }
    for (at, byte) in [(13, 1), (14, 0x44), (14, 0x65), (20, 0x20), (21, 1), (23, 17), (46, 0x40)] {
        let mut bytes = tcp4(1514);
        bytes[at] = byte;
        refused(&bytes, TCP4);
    }
    let mut long = tcp4(1514);
    (long[14], long[86]) = (0x4f, 0xf0);
    refused(&long, Offload { csum_start: 74, ..TCP4 });
    assert_eq!(pushed(&tcp4(65_590), TCP4), Err(DropReason::Oversize));
}

#[test]
fn a_batch_with_much_to_copy_or_to_cut_ends_early() {
    let memory = Mapping::private(1 << 16).expect("memory");
    assert!(memory.whole().write(&tcp4(1514)));
    let frames = |len, gso_size| {
        let mut batch = BatchStorage::new(1024).into_batch();
        while batch.room() > 0 {
            batch.push_offloaded(memory.view(0, len).expect("inside"), len, Offload { gso_size, ..TCP4 });
        }
        batch.len()
    };
    assert_eq!(frames(65_000, 1448), 24);
    assert_eq!(frames(1000, 1), 5);
    assert_eq!(frames(200, 1448), 1024);
}

#[test]
fn memory_is_given_back_after_every_look() {
    let mut lan = Plan::new(2).learning();
    for looks in 1..4 {
        lan.pass(0);
        assert_eq!(lan.offers[0].releases, looks);
    }
}

#[test]
fn a_checksum_behind_what_policy_reads_is_taken_and_one_within_it_is_not() {
    // UDP over IPv4, whose header ends at byte 42.
    let udp = |protocol: u8| {
        let mut bytes = tcp4(600);
        bytes[23] = protocol;
        bytes
    };
    let at =
        |csum_start, csum_offset| Offload { gso: Gso::None, gso_size: 0, hdr_len: 0, csum_start, csum_offset, ..TCP4 };
    // TCP in VXLAN, and in a tunnel whose headers are longer than the bytes that are read of a frame.
    for good in [at(84, 16), at(200, 16), at(34, 8), at(494, 16)] {
        assert_eq!(pushed(&udp(17), good), Ok(good));
        assert_eq!(pushed(&udp(47), good), Ok(good));
        assert_eq!(pushed(&udp(6), good), Err(DropReason::BadOffload), "no tunnel");
        assert_eq!(pushed(&udp(17), Offload { gso: Gso::Tcp4, gso_size: 100, ..good }), Err(DropReason::BadOffload));
    }
    for bad in [at(34, 0), at(26, 6), at(34, 7), at(20, 30), at(495, 16), at(598, 1)] {
        assert_eq!(pushed(&udp(17), bad), Err(DropReason::BadOffload), "{bad:?}");
    }
    // Neither IP nor ARP: behind the type, as of PPPoE.
    let mut other = udp(17);
    other[12..14].copy_from_slice(&[0x88, 0x64]);
    assert_eq!(pushed(&other, at(42, 16)), Ok(at(42, 16)));
    for kind in [[8, 6], [0x80, 0x35], [0, 100], [0x86, 0xdd]] {
        other[12..14].copy_from_slice(&kind);
        assert_eq!(pushed(&other, at(84, 16)), Err(DropReason::BadOffload), "{kind:?}");
    }
}

#[test]
fn a_tunnel_that_is_not_where_the_offload_says_is_refused() {
    let (bytes, offload) = InTunnel::default().build();
    let tunnel = offload.tunnel.expect("a tunnel");
    let with = |change: Tunnel| pushed(&bytes, Offload { tunnel: Some(change), ..offload });
    assert_eq!(with(tunnel), Ok(offload));
    // These are seen in the frame.
    assert_eq!(with(Tunnel { v6: true, udp: tunnel.udp + 4, ..tunnel }), Ok(offload));
    let refused = Err(DropReason::BadOffload);
    for (what, change) in [
        ("the packet within is elsewhere", Tunnel { inner_ip: tunnel.inner_ip + 1, ..tunnel }),
        ("it would begin in front of the UDP payload", Tunnel { inner_ip: 14, ..tunnel }),
        ("it is beyond the frame", Tunnel { inner_ip: u16::MAX, ..tunnel }),
    ] {
        assert_eq!(with(change), refused, "{what}");
    }
    assert_eq!(pushed(&bytes, Offload { gso: Gso::Tcp6, ..offload }), refused, "TCP over IPv4 within");
    assert_eq!(pushed(&bytes, Offload { csum_start: offload.csum_start + 2, ..offload }), refused);
    assert_eq!(
        pushed(&bytes, Offload { csum_start: 34, csum_offset: 6, ..offload }),
        refused,
        "the tunnel's own checksum"
    );
    let fragment = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at + 6] |= 0x20;
        pushed(&bytes, offload)
    };
    assert_eq!([fragment(14), fragment(tunnel.inner_ip.into())], [refused; 2]);
    let mut tcp = bytes.clone();
    tcp[23] = 6;
    assert_eq!(pushed(&tcp, offload), refused, "not UDP");
}

/// As Linux (6.18) does it: the checksum's place counts the tag, the tunnel's places do not.
#[test]
fn a_tunnel_is_found_behind_a_tag_that_its_places_do_not_count() {
    for v6 in [false, true] {
        let (mut bytes, offload) = InTunnel { v6, ..InTunnel::default() }.build();
        let told = offload.tunnel.expect("a tunnel");
        bytes.splice(12..12, [0x81, 0, 0, 5]);
        let tagged = Offload { csum_start: offload.csum_start + 4, hdr_len: offload.hdr_len + 4, ..offload };
        let tunnel = Tunnel { udp: told.udp + 4, inner_ip: told.inner_ip + 4, ..told };
        let seen = Offload { tunnel: Some(tunnel), ..tagged };
        assert_eq!(pushed(&bytes, Offload { tunnel: Some(Tunnel { v6: false, ..told }), ..tagged }), Ok(seen));
        assert_eq!(pushed(&bytes, seen), Ok(seen));
    }
}

#[test]
fn a_packet_that_is_not_where_the_tunnels_own_header_says_is_refused() {
    let (mut bytes, offload) = InTunnel::default().build();
    let tunnel = offload.tunnel.expect("a tunnel");
    // The payload begins like another packet.
    let (inner, end) = (usize::from(tunnel.inner_ip), usize::from(offload.hdr_len));
    let headers = bytes[inner..end].to_vec();
    bytes.splice(end..end, headers);
    let within = (end - inner) as u16;
    let other = Offload {
        csum_start: offload.csum_start + within,
        hdr_len: offload.hdr_len + within,
        tunnel: Some(Tunnel { inner_ip: tunnel.inner_ip + within, ..tunnel }),
        ..offload
    };
    assert_eq!(pushed(&bytes, other), Err(DropReason::BadOffload));
    // Nobody here knows what this port's tunnels look like.
    bytes[usize::from(tunnel.udp) + 2] ^= 1;
    assert_eq!(pushed(&bytes, other), Ok(other));
}

#[test]
fn the_tunnels_udp_header_is_within_what_policy_reads_also_behind_a_receivers_tag() {
    let (bytes, offload) = InTunnel { v6: true, ..InTunnel::default() }.build();
    let tunnel = offload.tunnel.expect("a tunnel");
    // Destination options of eight bytes each, behind the IPv6 header.
    for extensions in 0..12_u16 {
        let mut longer = bytes.clone();
        let mut chain = Vec::new();
        for number in 0..extensions {
            chain.extend([if number + 1 == extensions { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        if extensions > 0 {
            longer[20] = 60;
        }
        longer.splice(54..54, chain);
        let by = 8 * extensions;
        let moved = Offload {
            csum_start: offload.csum_start + by,
            hdr_len: offload.hdr_len + by,
            tunnel: Some(Tunnel { udp: tunnel.udp + by, inner_ip: tunnel.inner_ip + by, ..tunnel }),
            ..offload
        };
        let fits = 54 + by + 8 + 4 <= 128;
        assert_eq!(pushed(&longer, moved), if fits { Ok(moved) } else { Err(DropReason::BadOffload) }, "{extensions}");
    }
}
