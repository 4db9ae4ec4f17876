//! Tests of what a guarded port may send.

use std::net::IpAddr;
use std::sync::Arc;

use etherparse::PacketBuilder;
use proptest::prelude::*;
use ringway_memory::Mapping;

use super::{Checks, Claims, Guard, Prefix};
use crate::batch::Judge;
use crate::frame::Class;
use crate::policy::{Policy, Rule};
use crate::testing::{Lan, Mac, Plan, frame, mac};
use crate::{BatchStorage, Destination, DropReason, Member};

const ALL: Checks = Checks { mac: true, ip: true, dhcp: true, ra: true };

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap_or((text, if text.contains(':') { "128" } else { "32" }));
    Prefix { address: address.parse::<IpAddr>().expect("an address"), length: length.parse().expect("a length") }
}

fn guard(checks: Checks, prefixes: &[&str]) -> Guard {
    Guard::new(checks, &[mac(0), mac(7)], &prefixes.iter().map(|text| prefix(text)).collect::<Vec<_>>())
}

fn judge(guard: &Guard, frame: &[u8]) -> Result<(), DropReason> {
    let (mut head, len) = ([0xee; 128], frame.len().min(128));
    head[..len].copy_from_slice(&frame[..len]);
    guard.judge(&head, len)
}

fn udp(from: Mac, address: &str, ports: (u16, u16)) -> Vec<u8> {
    let (mut frame, link) = (Vec::new(), PacketBuilder::ethernet2(from.octets(), mac(1).octets()));
    let ip = match address.parse().expect("an address") {
        IpAddr::V4(address) => link.ipv4(address.octets(), [10, 0, 0, 2], 64),
        IpAddr::V6(address) => link.ipv6(address.octets(), [9; 16], 64),
    };
    ip.udp(ports.0, ports.1).write(&mut frame, &[0; 20]).expect("a frame");
    frame
}

#[test]
fn a_port_speaks_for_its_own_addresses_only() {
    let guard = guard(ALL, &["10.0.0.1", "10.1.0.0/16", "fd00::/64"]);
    for (address, good) in [
        ("10.0.0.1", true),
        ("10.0.0.2", false),
        ("10.1.255.255", true),
        ("10.2.0.0", false),
        ("0.0.0.0", false),
        ("255.255.255.255", false),
        ("fd00::9", true),
        ("fd00:0:0:1::", false),
        ("::", false),
        // Its own link-local address, and another's.
        ("fe80::ff:fe00:0", true),
        ("fe80::ff:fe00:1", false),
    ] {
        let wanted = if good { Ok(()) } else { Err(DropReason::SpoofedIp) };
        assert_eq!(judge(&guard, &udp(mac(0), address, (9, 9))), wanted, "{address}");
    }
    for source in [mac(1), Mac::BROADCAST, Mac::from_bits(0), Mac::from_bits(mac(0).bits() | 1)] {
        assert_eq!(judge(&guard, &udp(source, "10.0.0.1", (9, 9))), Err(DropReason::SpoofedMac));
    }
    assert_eq!(judge(&guard, &udp(mac(7), "10.0.0.1", (9, 9))), Ok(()), "its second address");
    assert_eq!(judge(&guard, &frame(mac(1), mac(0), 60, 1)), Ok(()), "neither IP nor ARP");
    assert_eq!(judge(&guard, &udp(mac(0), "10.0.0.1", (67, 68))), Err(DropReason::DhcpServer));
    assert_eq!(judge(&guard, &udp(mac(0), "fd00::1", (547, 546))), Err(DropReason::DhcpServer));
    assert_eq!(judge(&guard, &udp(mac(0), "0.0.0.0", (68, 67))), Ok(()), "asks for an address");
    assert_eq!(judge(&guard, &udp(mac(0), "10.0.0.9", (68, 67))), Err(DropReason::SpoofedIp), "renews another's");
}

#[test]
fn a_station_without_an_address_reports_its_groups() {
    let guard = guard(ALL, &["10.0.0.1"]);
    let report = |source: &str| {
        let mut frame = udp(mac(0), source, (9, 9));
        frame[23] = 2;
        frame
    };
    for (source, wanted) in [("0.0.0.0", Ok(())), ("10.0.0.1", Ok(())), ("10.0.0.2", Err(DropReason::SpoofedIp))] {
        assert_eq!(judge(&guard, &report(source)), wanted, "{source}");
    }
    // Nothing else passes because a report did.
    assert!(!is_like(&guard, &report("0.0.0.0"), &udp(mac(0), "0.0.0.0", (9, 9))));
}

#[test]
fn the_empty_list_of_one_family_allows_none_of_it() {
    let guard = guard(Checks { ip: true, ..Checks::NONE }, &["10.0.0.0/8"]);
    assert_eq!(judge(&guard, &udp(mac(5), "10.3.4.5", (9, 9))), Ok(()));
    assert_eq!(judge(&guard, &udp(mac(5), "fe80::ff:fe00:0", (9, 9))), Err(DropReason::SpoofedIp));
    let everything = Guard::new(Checks { ip: true, ..Checks::NONE }, &[], &[prefix("0.0.0.0/0"), prefix("::/0")]);
    for address in ["0.0.0.0", "255.255.255.255", "::", "ffff::"] {
        assert_eq!(judge(&everything, &udp(mac(5), address, (9, 9))), Ok(()), "{address}");
    }
}

#[test]
fn arp_and_neighbour_discovery_name_the_port_itself() {
    let guard = guard(ALL, &["10.0.0.1", "fd00::1"]);
    let arp = |sender: Mac, address: [u8; 4], kind: [u8; 2]| {
        let mut frame = frame(Mac::BROADCAST, mac(0), 60, 0);
        frame[12..14].copy_from_slice(&kind);
        frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
        frame[22..28].copy_from_slice(&sender.octets());
        frame[28..32].copy_from_slice(&address);
        judge(&guard, &frame)
    };
    for kind in [[8, 6], [0x80, 0x35]] {
        assert_eq!(arp(mac(0), [10, 0, 0, 1], kind), Ok(()));
        assert_eq!(arp(mac(7), [0; 4], kind), Ok(()), "a probe");
        assert_eq!(arp(mac(0), [10, 0, 0, 254], kind), Err(DropReason::SpoofedArp), "the gateway's");
        assert_eq!(arp(mac(1), [10, 0, 0, 1], kind), Err(DropReason::SpoofedArp), "a victim's");
    }
    let advertise = |kind: u8, source: &str, target: &str, option: Mac| {
        let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
        let mut frame = frame(mac(1), mac(0), 12, 0);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
        frame.extend(octets(source));
        frame.extend([9; 16]);
        frame.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(octets(target));
        frame.extend([2, 1]);
        frame.extend(option.octets());
        judge(&guard, &frame)
    };
    assert_eq!(advertise(136, "fd00::1", "fd00::1", mac(0)), Ok(()));
    assert_eq!(advertise(136, "fd00::1", "fd00::2", mac(0)), Err(DropReason::SpoofedNd), "another's address");
    assert_eq!(advertise(136, "fd00::2", "fd00::1", mac(0)), Err(DropReason::SpoofedNd), "from another");
    assert_eq!(advertise(136, "fd00::1", "fd00::1", mac(1)), Err(DropReason::SpoofedNd), "at another's card");
    assert_eq!(advertise(135, "fd00::1", "fd00::2", mac(0)), Ok(()), "a question");
    assert_eq!(advertise(135, "::", "fd00::1", mac(0)), Ok(()), "about to take its own");
    assert_eq!(
        advertise(135, "::", "fd00::2", mac(0)),
        Err(DropReason::SpoofedNd),
        "keeps another from taking its own"
    );
    assert_eq!(advertise(134, "fd00::1", "::501:0:0:5dc", mac(0)), Err(DropReason::RouterAdvertised));
}

/// A LAN whose port 0 is guarded.
fn lan(guard: Guard) -> Lan {
    let policy = Policy { guard: Some(Arc::new(guard)), ..Policy::default() };
    let change = move |member: Member| match member.owner.index() {
        0 => Member { policy: Some(policy.clone()), ..member },
        _ => member,
    };
    Plan { change: Box::new(change), ..Plan::new(3) }.learning()
}

#[test]
fn what_is_refused_teaches_the_switch_nothing_and_counts_at_its_source() {
    let mut lan = lan(guard(ALL, &["10.0.0.1"]));
    lan.send(1, &[frame(Mac::BROADCAST, mac(1), 60, 0)]);
    lan.received(0);
    // Between good frames, because the switch reuses the destination of the frame before.
    let (good, bad) = (udp(mac(0), "10.0.0.1", (9, 9)), udp(mac(1), "10.0.0.1", (9, 9)));
    lan.send(0, &[good.clone(), bad, udp(mac(0), "10.0.0.9", (9, 9)), good.clone()]);
    assert_eq!(lan.received(1), [good.clone(), good]);
    assert_eq!((lan.dropped(0, DropReason::SpoofedMac), lan.dropped(0, DropReason::SpoofedIp)), (1, 1));
    assert_eq!(lan.counters(0).in_frames, 4);
    lan.send(2, &[frame(mac(1), mac(2), 60, 0)]);
    assert_eq!(lan.received(1).len(), 1, "port 1 kept its address");
}

#[test]
fn a_frame_that_changes_while_it_is_judged_is_delivered_as_it_was_judged() {
    let mut lan = lan(guard(ALL, &["10.0.0.1"]));
    let good = udp(mac(0), "10.0.0.1", (9, 9));
    lan.offers[0].put(&good, &[]);
    lan.offers[0].changes = Some((26, [10, 0, 0, 9]));
    lan.pass(0);
    assert_eq!(lan.received(1), [good]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// The fast check and the full check agree.
    #[test]
    fn a_frame_that_passes_claims_nothing_that_is_not_the_ports(
        v6 in any::<bool>(),
        own in any::<bool>(),
        ports in (prop_oneof![66..70u16, 545..549u16], prop_oneof![66..70u16, 545..549u16]),
        checks in any::<[bool; 4]>(),
        changes in proptest::collection::vec((12..80usize, any::<u8>()), 0..3),
    ) {
        let checks = Checks { mac: checks[0], ip: checks[1], dhcp: checks[2], ra: checks[3] };
        let guard = guard(checks, &["10.0.0.1", "fd00::1"]);
        let address = match (v6, own) { (false, true) => "10.0.0.1", (false, false) => "10.0.0.2", (true, true) => "fd00::1", _ => "fd00::2" };
        let mut frame = udp(mac(0), address, ports);
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) { *place = byte }
        }
        let verdict = judge(&guard, &frame);
        // Nor does it matter which frame came before.
        let mut judging = guard.judging();
        for before in [udp(mac(0), "10.0.0.1", (1, 2)), udp(mac(0), "fd00::1", (1, 2)), frame.clone()] {
            let judge = |judging: &mut super::source::Judging<'_>, frame: &[u8]| {
                let mut head = [0; 128];
                let len = frame.len().min(128);
                head[..len].copy_from_slice(&frame[..len]);
                judging.judge(&head, len)
            };
            let _ = judge(&mut judging, &before);
            prop_assert_eq!(judge(&mut judging, &frame), verdict);
        }
        let Ok(claims) = Claims::read(&frame[..frame.len().min(128)]) else {
            prop_assert!(verdict == Err(DropReason::GuardUnreadable) || verdict == Err(DropReason::SpoofedMac));
            return Ok(());
        };
        let mine = |claimed: Option<u128>| claimed.is_none_or(|a| [0xfd00_u128 << 112 | 1, 0xfe80 << 112 | 0xff_fe00_0000, 0xfe80 << 112 | 0xff_fe00_0007].contains(&a));
        let right = (!checks.ip || claims.v4.is_none_or(|a| a == 0x0a00_0001) && mine(claims.v6) && mine(claims.target))
            && (!checks.mac || claims.hardware.is_none_or(|a| a == mac(0) || a == mac(7)))
            && (!checks.dhcp || claims.role != super::Role::DhcpServer)
            && (!checks.ra || claims.role != super::Role::Router);
        prop_assert_eq!(verdict.is_ok(), right, "{:?} {:?}", verdict, claims);
    }
}

/// An ARP request from `sender` with `address`.
fn arp(sender: Mac, address: [u8; 4]) -> Vec<u8> {
    let mut frame = frame(Mac::BROADCAST, sender, 60, 0);
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&sender.octets());
    frame[28..32].copy_from_slice(&address);
    frame
}

/// A frame of this EtherType.
fn typed(kind: u16) -> Vec<u8> {
    let mut frame = frame(mac(1), mac(0), 60, 0);
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
}

/// An IPv6 packet with a header between its first and UDP's, or another last one.
fn chained(kind: u8, header: [u8; 8], rest: &[u8]) -> Vec<u8> {
    let mut frame = udp(mac(0), "fd00::1", (9, 9));
    frame[20] = kind;
    frame.truncate(54);
    [&frame[..], &header, rest].concat()
}

fn is_like(guard: &Guard, judged: &[u8], other: &[u8]) -> bool {
    let head = |frame: &[u8]| {
        let (mut head, len) = ([0xee; 128], frame.len().min(128));
        head[..len].copy_from_slice(&frame[..len]);
        (head, len)
    };
    let ((judged, len), (other, other_len)) = (head(judged), head(other));
    guard.is_like((&judged, len), (&other, other_len))
}

/// The cost of a guard depends on this: frames of one kind are judged a row at a time.
#[test]
fn frames_of_one_kind_are_alike_whatever_their_ports_and_their_addresses_of_one_prefix() {
    const PREFIXES: [&str; 2] = ["10.0.0.0/8", "fd00::/16"];
    let all = guard(ALL, &PREFIXES);
    let options =
        |port: u16| chained(0, [17, 0, 5, 2, 0, 0, 1, 0], &[&port.to_be_bytes()[..], &[0, 9, 0, 8, 0, 0]].concat());
    let ping = |sequence: u8| chained(58, [128, 0, 0, 0, 0, 0, 0, sequence], &[sequence; 8]);
    let mut with_options = udp(mac(0), "10.0.0.1", (9, 9));
    with_options[14] = 0x46;
    let mut segment = udp(mac(0), "10.9.9.9", (5000, 443));
    segment[23] = 6;
    for (kind, one, other) in [
        ("IPv4", udp(mac(0), "10.0.0.1", (9, 9)), udp(mac(0), "10.200.3.4", (1024, 80))),
        ("IPv4, TCP and UDP", udp(mac(0), "10.0.0.1", (9, 9)), segment),
        ("IPv4 with options", with_options.clone(), with_options),
        ("IPv6", udp(mac(0), "fd00::1", (9, 9)), udp(mac(0), "fd00:1::7", (1024, 80))),
        ("IPv6 with options", options(9), options(1024)),
        ("IPv6, echo", ping(1), ping(2)),
        ("ARP", arp(mac(0), [10, 0, 0, 1]), arp(mac(0), [10, 3, 2, 1])),
        ("a type without addresses", typed(0x88b5), typed(0x88b5)),
        ("a tag", tagged(&typed(0x88b5)), tagged(&typed(0x88b5))),
        ("IPv4 behind a tag", tagged(&udp(mac(0), "10.0.0.1", (9, 9))), tagged(&udp(mac(0), "10.1.1.1", (1024, 80)))),
        (
            "IPv4 behind two",
            tagged(&tagged(&udp(mac(0), "10.0.0.1", (9, 9)))),
            tagged(&tagged(&udp(mac(0), "10.1.1.1", (7, 8)))),
        ),
    ] {
        for checks in [ALL, Checks { mac: true, ..Checks::NONE }, Checks { ip: true, ..Checks::NONE }] {
            let guard = guard(checks, &PREFIXES);
            assert_eq!((judge(&guard, &one), judge(&guard, &other)), (Ok(()), Ok(())), "{kind}");
            assert!(is_like(&guard, &one, &other), "{kind}, {checks:?}");
        }
    }
    // Frames whose claims depend on more than the compared bytes.
    for (kind, one) in [
        ("a DHCP client", udp(mac(0), "0.0.0.0", (68, 67))),
        ("a DHCPv6 client", udp(mac(0), "fd00::1", (546, 547))),
        ("a solicitation", chained(58, [133, 0, 0, 0, 0, 0, 0, 0], &[])),
    ] {
        assert!(!is_like(&all, &one, &one), "{kind}");
    }
    assert!(!is_like(&all, &typed(0x88b5), &typed(0x0800)));
    assert!(!is_like(&all, &udp(mac(0), "10.0.0.1", (9, 9)), &udp(mac(0), "10.0.0.1", (9, 67))));
    assert!(!is_like(&all, &udp(mac(0), "10.0.0.1", (9, 9)), &udp(mac(0), "11.0.0.1", (9, 9))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// A frame that matches a pattern would also pass by itself.
    #[test]
    fn what_is_like_a_frame_that_passed_passes_by_itself(
        kind in 0..14usize,
        tags in 0..3usize,
        ports in (prop_oneof![60..75u16, 540..550u16, any::<u16>()], prop_oneof![60..75u16, 540..550u16, any::<u16>()]),
        checks in any::<[bool; 4]>(),
        length in prop_oneof![Just(32u8), 0..33u8],
        changes in proptest::collection::vec((6..100usize, any::<u8>()), 0..3),
        others in proptest::collection::vec((6..100usize, prop_oneof![any::<u8>(), Just(0), Just(67), Just(17), Just(58)]), 0..4),
        cut in prop_oneof![Just(0usize), 1..60usize],
    ) {
        let checks = Checks { mac: checks[0], ip: checks[1], dhcp: checks[2], ra: checks[3] };
        let guard = guard(checks, &[&format!("10.0.0.0/{}", length.max(8)), "10.1.0.0/16", "0.0.0.0", "fd00::/64", "::"]);
        let transport = [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &[0; 12]].concat();
        let neighbour = |kind: u8| chained(58, [kind, 0, 0, 0, 0, 0, 0, 0], &[[0; 24].as_slice(), &[2, 1], &mac(0).octets()].concat());
        let llc = |rest: &[u8]| [&typed(50)[..14], rest, &udp(mac(0), "10.0.0.1", ports)[14..]].concat();
        let mut frame = match kind {
            0 => udp(mac(0), "10.0.0.0", ports),
            1 => udp(mac(7), "10.1.2.3", ports),
            2 => udp(mac(0), "fd00::1", ports),
            3 => chained(0, [17, 0, 5, 2, 0, 0, 1, 0], &transport),
            4 => chained(60, [6, 0, 1, 4, 0, 0, 0, 0], &transport),
            5 => chained(44, [17, 0, 0, 1, 0, 0, 0, 7], &transport),
            6 => chained(51, [17, 1, 0, 0, 0, 0, 0, 1], &[[0; 4].as_slice(), &transport].concat()),
            7 => neighbour(128),
            8 => neighbour(143),
            9 => neighbour(136),
            10 => arp(mac(0), [10, 0, 0, 0]),
            11 => arp(mac(0), [0; 4]),
            12 => llc(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
            _ => typed(0x88b5),
        };
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) { *place = byte }
        }
        for _ in 0..tags { frame = tagged(&frame) }
        let mut other = frame.clone();
        for (at, byte) in others {
            if let Some(place) = other.get_mut(at) { *place = byte }
        }
        other.truncate(14.max(other.len().saturating_sub(cut)));
        if is_like(&guard, &frame, &other) {
            prop_assert_eq!(judge(&guard, &frame), Ok(()));
            prop_assert_eq!(judge(&guard, &other), Ok(()));
        }
    }
}

proptest! {
    /// Rows of equal frames get the same results as each frame by itself.
    #[test]
    fn a_batch_is_judged_as_its_frames_are(
        dhcp in any::<bool>(),
        kinds in proptest::collection::vec((0..15usize, prop_oneof![Just(8usize), 1..20usize]), 1..8),
    ) {
        let guard = guard(Checks { dhcp, ..ALL }, &["10.0.0.1", "fd00::1"]);
        let good = udp(mac(0), "10.0.0.1", (9, 9));
        let elsewhere = [&mac(2).octets()[..], &good[6..]].concat();
        let tagged = tagged(&good);
        let samples = [
            good.clone(),
            udp(mac(7), "10.0.0.1", (9, 9)),
            udp(mac(0), "10.0.0.1", (67, 9)),
            udp(mac(0), "10.0.0.2", (9, 9)),
            good[..37].to_vec(),
            elsewhere,
            tagged,
            udp(mac(0), "fd00::1", (9, 9)),
            udp(mac(0), "fd00::1", (9, 546)),
            udp(mac(0), "fd00::1", (10, 9)),
            udp(mac(0), "10.0.0.1", (10, 9)),
            arp(mac(0), [10, 0, 0, 1]),
            arp(mac(0), [10, 0, 0, 2]),
            typed(0x88b5),
            udp(mac(0), "fd00::2", (9, 9)),
        ];
        let frames: Vec<&Vec<u8>> =
            kinds.iter().flat_map(|&(kind, count)| std::iter::repeat_n(&samples[kind], count)).collect();
        let memory = Mapping::private(frames.len() * 128).expect("memory");
        let mut batch = BatchStorage::new(frames.len()).into_batch();
        for (number, frame) in frames.iter().enumerate() {
            let view = memory.view(number * 128, frame.len()).expect("in the memory");
            prop_assert!(view.write(frame));
            batch.push(view, frame.len());
        }
        guard.admit(&mut batch);
        batch.classify(Some(Class::default()), |head, _| Ok(if Class::has_tag(head) { Class::tagged(5, false) } else { Class::untagged(5) }));
        batch.set_destinations(|_, to| Destination::Port(to.bits() as u16));
        for (number, frame) in frames.iter().enumerate() {
            let verdict = judge(&guard, frame);
            let wanted = match verdict {
                Ok(()) => Destination::Port(Mac::destination(batch.head(number)).bits() as u16),
                Err(reason) => Destination::Drop(reason),
            };
            prop_assert_eq!(batch.destination(number), wanted, "frame {} of {:?}", number, &kinds);
            prop_assert!(verdict.is_err() || batch.class(number).is_tagged() == (frame[12..14] == [0x81, 0]));
        }
        let mut end = 0;
        while let Some((destination, next)) = batch.run(end) {
            prop_assert!((end..next).all(|number| batch.destination(number) == destination));
            end = next;
        }
        prop_assert_eq!(end, frames.len());
    }
}
