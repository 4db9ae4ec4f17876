//! Claims compared with an independent implementation of the protocols (etherparse), and claims of forged frames.

use etherparse::{IpNumber, LaxNetSlice, LaxSlicedPacket, PacketBuilder, TransportSlice};
use proptest::prelude::*;

use super::{Claims, Protocol, Role, Unreadable};
use crate::Mac;

const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn ethernet(kinds: &[[u8; 2]], rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(SOURCE);
    for (at, kind) in kinds.iter().enumerate() {
        frame.extend(kind);
        if at + 1 < kinds.len() {
            frame.extend([0, 5]);
        }
    }
    frame.extend(rest);
    frame
}

/// The private copy of a frame.
fn read(frame: &[u8]) -> Result<Claims, Unreadable> {
    Claims::read(&frame[..frame.len().min(128)])
}

fn arp(sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 2];
    arp.extend(sender);
    arp.extend(address);
    arp.extend([0; 10]);
    arp
}

/// IPv6 from fd00::1 with these headers before ICMPv6 or another last one.
fn ipv6(source: u128, chain: &[u8], next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend(((chain.len() + payload.len()) as u16).to_be_bytes());
    ip.extend([next, 255]);
    ip.extend(source.to_be_bytes());
    ip.extend([0xff; 16]);
    ip.extend(chain);
    ip.extend(payload);
    ip
}

const HOST: u128 = 0xfd00_0000_0000_0000_0000_0000_0000_0001;
const VICTIM: u128 = HOST + 1;

/// A message of neighbour discovery with `zeroes` after its type, a target if it has one, and options.
fn discovery(kind: u8, target: Option<u128>, options: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.map(u128::to_be_bytes).iter().flatten());
    message.extend(options);
    message
}

fn option(kind: u8, mac: [u8; 6]) -> Vec<u8> {
    [vec![kind, 1], mac.to_vec()].concat()
}

#[test]
fn tags_and_llc_hide_nothing() {
    let (plain, other) = (ethernet(&[[8, 6]], &arp(SOURCE, [10, 0, 0, 9])), [0x02, 0, 0, 0, 0, 9]);
    let found = read(&plain).expect("readable");
    assert_eq!((found.protocol, found.hardware, found.v4), (Protocol::Arp, Some(Mac::new(SOURCE)), Some(0x0a00_0009)));
    for tags in [&[[0x81, 0]][..], &[[0x88, 0xa8], [0x81, 0]], &[[0x91, 0], [0x92, 0], [0x93, 0]], &[[0x81, 0]; 20]] {
        let kinds = [tags, &[[8, 6]]].concat();
        let found = read(&ethernet(&kinds, &arp(other, [10, 0, 0, 9])));
        assert_eq!(found.expect("readable").hardware, Some(Mac::new(other)), "{} tags", tags.len());
    }
    assert_eq!(read(&ethernet(&[[0x81, 0]; 40], &[])), Err(Unreadable), "tags to the end");
    assert_eq!(read(&ethernet(&[[0x81, 0]; 24], &arp(other, [10, 0, 0, 9]))), Err(Unreadable), "beyond 128 bytes");
    for oui in [0, 0xf8] {
        let snap = [vec![0xaa, 0xaa, 3, 0, 0, oui, 8, 6], arp(other, [10, 0, 0, 9])].concat();
        assert_eq!(read(&ethernet(&[[0, 36]], &snap)).expect("readable").hardware, Some(Mac::new(other)));
    }
    for tags in 24..29 {
        let kinds = [vec![[0x81, 0]; tags], vec![[0, 36]]].concat();
        let snap = [vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 6], arp(other, [10, 0, 0, 9])].concat();
        assert_eq!(read(&ethernet(&kinds, &snap)), Err(Unreadable), "LLC that the end of the copy cuts, {tags} tags");
    }
    let spanning_tree = ethernet(&[[0, 38]], &[0x42, 0x42, 3, 0, 0]);
    assert_eq!(read(&spanning_tree).expect("readable").protocol, Protocol::Other);
    for bad in [&[0, 6, 8, 0, 6, 4][..], &[0, 1, 8, 0, 8, 4], &[0, 1, 0x86, 0xdd, 6, 4], &[0, 1, 8, 0, 6]] {
        let mut frame = arp(SOURCE, [10, 0, 0, 1]);
        frame[..bad.len()].copy_from_slice(bad);
        frame.truncate(if bad.len() == 6 { 28 } else { 27 });
        assert_eq!(read(&ethernet(&[[8, 6]], &frame)), Err(Unreadable), "{bad:?}");
    }
}

#[test]
fn addresses_that_a_station_does_not_have_yet_are_no_claims() {
    let probe = read(&ethernet(&[[8, 6]], &arp(SOURCE, [0; 4]))).expect("readable");
    assert_eq!((probe.v4, probe.hardware), (None, Some(Mac::new(SOURCE))));
    let mut discover = Vec::new();
    let udp = |from: [u8; 4], ports: (u16, u16)| {
        PacketBuilder::ethernet2(SOURCE, [0xff; 6]).ipv4(from, [255; 4], 64).udp(ports.0, ports.1)
    };
    udp([0; 4], (68, 67)).write(&mut discover, &[0; 300]).expect("a frame");
    assert_eq!(read(&discover).expect("readable").v4, None);
    let mut other = Vec::new();
    udp([0; 4], (68, 68)).write(&mut other, &[]).expect("a frame");
    assert_eq!(read(&other).expect("readable").v4, Some(0), "only to a server");

    let solicit = |source| {
        read(&ethernet(&[[0x86, 0xdd]], &ipv6(source, &[], 58, &discovery(135, Some(VICTIM), &[])))).expect("readable")
    };
    assert_eq!((solicit(0).v6, solicit(0).target), (None, Some(VICTIM)), "about to take it");
    assert_eq!((solicit(HOST).v6, solicit(HOST).target), (Some(HOST), None), "asks for somebody else's");
    let report = ipv6(0, &[58, 0, 5, 2, 0, 0, 1, 0], 0, &[143, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&ethernet(&[[0x86, 0xdd]], &report)).expect("readable").v6, None);
    let ping = ipv6(0, &[], 58, &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&ethernet(&[[0x86, 0xdd]], &ping)).expect("readable").v6, Some(0));
}

#[test]
fn neighbour_discovery_is_found_behind_every_chain_of_headers() {
    let message = discovery(136, Some(VICTIM), &[option(14, [0; 6]), option(2, [2, 9, 9, 9, 9, 9])].concat());
    let header = |next: u8, len: u8| {
        let mut header = vec![0; (usize::from(len) + 1) * 8];
        (header[0], header[1]) = (next, len);
        header
    };
    let chains: [(u8, Vec<u8>); 6] = [
        (58, Vec::new()),
        (0, header(58, 0)),
        (60, [header(43, 0), header(58, 1)].concat()),
        (135, header(58, 0)),
        (51, {
            let mut ah = vec![0; 16];
            (ah[0], ah[1]) = (58, 2);
            ah
        }),
        (140, [header(139, 0), header(58, 0)].concat()),
    ];
    for (next, chain) in chains {
        let found = read(&ethernet(&[[0x86, 0xdd]], &ipv6(HOST, &chain, next, &message))).expect("readable");
        let wanted = (Protocol::Neighbour, Some(VICTIM), Some(Mac::new([2, 9, 9, 9, 9, 9])), Some(HOST));
        assert_eq!((found.protocol, found.target, found.hardware, found.v6), wanted, "{next} {chain:?}");
    }
    let unreadable = |next, chain: &[u8], message: &[u8], why: &str| {
        assert_eq!(read(&ethernet(&[[0x86, 0xdd]], &ipv6(HOST, chain, next, message))), Err(Unreadable), "{why}");
    };
    unreadable(60, &header(58, 8), &message, "a header that leads out of the copy");
    unreadable(60, &header(58, 31), &message, "one that leads out of the frame");
    unreadable(44, &[58, 0, 0, 0, 0, 0, 0, 1], &message, "discovery in a fragment");
    unreadable(44, &[58, 0, 0, 1, 0, 0, 0, 1], &message, "discovery in a first fragment");
    unreadable(44, &[60, 0, 0, 1, 0, 0, 0, 1], &[], "a first fragment without its headers");
    // Padding is no part of the packet: the real header comes with the next fragment.
    let padded = |chain: &[u8], padding: &[u8]| {
        let mut frame = ethernet(&[[0x86, 0xdd]], &ipv6(HOST, &[&[60, 0, 0, 1, 0, 0, 0, 1], chain].concat(), 44, &[]));
        frame.extend(padding);
        read(&frame)
    };
    let (server, ping) = ([2, 35, 2, 34, 0, 8, 0, 0], [128, 0, 0, 0, 0, 0, 0, 0]);
    for (next, padding) in
        [(17, [0, 9, 0, 9, 0, 8, 0, 0]), (58, ping), (60, header(59, 0).try_into().expect("8 bytes"))]
    {
        assert_eq!(padded(&header(next, 0), &padding), Err(Unreadable), "{next} in the padding of a first fragment");
    }
    let (half, whole) = ([header(17, 0), server[..4].to_vec()].concat(), [header(17, 0), server.to_vec()].concat());
    assert_eq!(padded(&half, &server[4..]), Err(Unreadable), "half a header");
    assert_eq!(padded(&whole, &[0; 8]).expect("readable").role, Role::DhcpServer);
    assert_eq!(padded(&[header(58, 0), ping.to_vec()].concat(), &[]).expect("readable").protocol, Protocol::Ip);
    unreadable(58, &[], &discovery(136, Some(VICTIM), &[2, 0, 1, 1, 1, 1, 1, 1]), "an option without length");
    unreadable(58, &[], &discovery(136, Some(VICTIM), &[2, 2, 1, 1, 1, 1, 1, 1]), "one longer than what is left");
    unreadable(58, &[], &discovery(136, Some(VICTIM), &[1]), "half an option");
    let both = [option(2, [2, 9, 9, 9, 9, 9]), option(2, SOURCE)].concat();
    unreadable(58, &[], &discovery(136, Some(VICTIM), &both), "two answers");
    unreadable(
        58,
        &[],
        &discovery(136, Some(VICTIM), &[option(14, [0; 6]).repeat(6), option(2, SOURCE)].concat()),
        "options beyond the copy",
    );
    unreadable(58, &[], &discovery(136, None, &[]), "no target");
    let later = ethernet(&[[0x86, 0xdd]], &ipv6(HOST, &[58, 0, 0, 8, 0, 0, 0, 1], 44, &message));
    let found = read(&later).expect("readable");
    assert_eq!((found.protocol, found.v6), (Protocol::Ip, Some(HOST)), "a later fragment has its source");
    let mut jumbo = ipv6(HOST, &[], 58, &message);
    jumbo[4..6].fill(0);
    assert_eq!(read(&ethernet(&[[0x86, 0xdd]], &jumbo)), Err(Unreadable), "no length");
    let mut longer = ipv6(HOST, &[], 58, &message);
    longer[5] += 8;
    assert_eq!(read(&ethernet(&[[0x86, 0xdd]], &longer)), Err(Unreadable), "longer than the frame");
}

#[test]
fn routers_and_servers_are_told_from_stations() {
    let role = |frame: &[u8]| read(frame).expect("readable").role;
    for (kind, wanted) in [(133, Role::Station), (134, Role::Router), (137, Role::Router)] {
        let body = discovery(kind, Some(0), &[0; 16]);
        let fixed = match kind {
            133 => 8,
            134 => 16,
            _ => 40,
        };
        let frame = ethernet(&[[0x86, 0xdd]], &ipv6(HOST, &[], 58, &body[..fixed]));
        assert_eq!(role(&frame), wanted, "{kind}");
    }
    for (ports, wanted) in [
        ((67, 68), Role::DhcpServer),
        ((9, 68), Role::DhcpServer),
        ((67, 67), Role::DhcpServer),
        ((68, 67), Role::Station),
        ((547, 546), Role::Station),
    ] {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(SOURCE, [0xff; 6]).ipv4([10, 0, 0, 1], [255; 4], 64);
        builder.udp(ports.0, ports.1).write(&mut frame, &[0; 240]).expect("a frame");
        assert_eq!(role(&frame), wanted, "{ports:?}");
        // With options, and in fragments: the first has the ports.
        frame[14] = 0x46;
        frame.splice(34..34, [1, 1, 1, 1]);
        frame[20] = 0x20;
        assert_eq!(role(&frame), wanted, "{ports:?}");
        frame[21] = 1;
        assert_eq!(role(&frame), Role::Station, "{ports:?}");
    }
    for (ports, wanted) in [((547, 546), Role::DhcpServer), ((9, 546), Role::DhcpServer), ((546, 547), Role::Station)] {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(SOURCE, [0xff; 6]).ipv6(HOST.to_be_bytes(), [0xff; 16], 64);
        builder.udp(ports.0, ports.1).write(&mut frame, &[0; 240]).expect("a frame");
        assert_eq!(role(&frame), wanted, "{ports:?}");
    }
}

#[derive(Clone, Debug)]
struct Sample {
    tags: usize,
    v6: bool,
    address: [u8; 16],
    ports: (u16, u16),
    tcp: bool,
    payload: usize,
}

impl Sample {
    fn build(&self) -> Vec<u8> {
        use etherparse::{DoubleVlanHeader, SingleVlanHeader, VlanHeader};
        let ethernet = PacketBuilder::ethernet2(SOURCE, [2, 0, 0, 0, 0, 2]);
        let v4 = [self.address[0], self.address[1], self.address[2], self.address[3]];
        let mut frame = Vec::new();
        macro_rules! finish {
            ($link:expr) => {{
                let ip = if self.v6 { $link.ipv6(self.address, [9; 16], 64) } else { $link.ipv4(v4, [9; 4], 64) };
                let payload = vec![7; self.payload];
                match self.tcp {
                    true => ip.tcp(self.ports.0, self.ports.1, 1, 1).write(&mut frame, &payload),
                    false => ip.udp(self.ports.0, self.ports.1).write(&mut frame, &payload),
                }
            }};
        }
        let single = SingleVlanHeader::default();
        match self.tags {
            0 => finish!(ethernet),
            1 => finish!(ethernet.vlan(VlanHeader::Single(single))),
            _ => finish!(ethernet.vlan(VlanHeader::Double(DoubleVlanHeader { outer: single.clone(), inner: single }))),
        }
        .expect("a frame");
        frame
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    let ports = prop_oneof![any::<u16>(), 66..70u16, 545..549u16];
    let address = prop_oneof![any::<[u8; 16]>(), Just([0; 16])];
    (0..3usize, any::<bool>(), address, (ports.clone(), ports), any::<bool>(), 0..300usize)
        .prop_map(|(tags, v6, address, ports, tcp, payload)| Sample { tags, v6, address, ports, tcp, payload })
}

/// Source addresses and UDP ports.
type Found = (Option<u32>, Option<u128>, Option<(u16, u16)>);

/// The result of the other implementation.
fn oracle(frame: &[u8]) -> Option<Found> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (v4, v6) = match packet.net.as_ref()? {
        // A report of groups by a host without an address claims none.
        LaxNetSlice::Ipv4(ip) => {
            let (source, protocol) = (u32::from(ip.header().source_addr()), ip.header().protocol());
            ((source != 0 || protocol != IpNumber::IGMP).then_some(source), None)
        }
        LaxNetSlice::Ipv6(ip) => (None, Some(u128::from(ip.header().source_addr()))),
        LaxNetSlice::Arp(_) => return None,
    };
    let ports = match packet.transport {
        Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
        _ => None,
    };
    Some((v4, v6, ports))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn claims_are_what_another_implementation_reads(
        sample in samples(),
        changes in proptest::collection::vec((12..90usize, any::<u8>()), 0..3),
    ) {
        let mut frame = sample.build();
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) { *place = byte }
        }
        let Ok(claims) = read(&frame) else { return Ok(()) };
        let Some((v4, v6, ports)) = oracle(&frame) else { return Ok(()) };
        prop_assume!(claims.protocol == Protocol::Ip);
        let client = v4 == Some(0) && ports == Some((68, 67));
        prop_assert_eq!(claims.v4, if client { None } else { v4 });
        let quiet = v6 == Some(0) && claims.v6.is_none();
        prop_assert!(quiet || claims.v6 == v6);
        if let Some((from, to)) = ports {
            let serves = match v4 {
                Some(source) => !(source == 0 && (from, to) == (68, 67)) && (from == 67 || to == 68),
                None => from == 547 || to == 546,
            };
            prop_assert_eq!(claims.role == Role::DhcpServer, serves);
        }
    }

    /// A whole frame is read, and a shorter copy of it never reads as another.
    #[test]
    fn a_frame_cut_short_is_unreadable_or_the_same(sample in samples(), len in 14..128usize) {
        let frame = sample.build();
        let whole = read(&frame);
        prop_assert!(whole.is_ok());
        let cut = Claims::read(&frame[..len.min(frame.len())]);
        prop_assert!(cut == whole || cut == Err(Unreadable));
    }

    #[test]
    fn anything_is_read_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..128), kind in 0..6usize) {
        let kinds = [[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0], [0, 40], [0x80, 0x35]];
        let frame = ethernet(&[kinds[kind]], &bytes);
        let _ = read(&frame);
    }
}
