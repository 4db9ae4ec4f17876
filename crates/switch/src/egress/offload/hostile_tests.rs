//! Frames of hostile senders for receivers that accept any set of offloads, in all kinds of VLANs.

use proptest::prelude::*;

use super::tunnel_tests::{InTunnel, tunnels};
use crate::policy::{Bound, Claims, Domain, Membership, Rules};
use crate::testing::hostile::{Hostile, accepts, hostile};
use crate::testing::reading::Reading;
use crate::testing::samples::complete;
use crate::testing::{Lan, Plan};
use crate::{Accepts, DropReason, Gso, Member, Offload, Tunnel};

/// How tags change on the way from port 0 to port 1.
#[derive(Clone, Copy, Debug)]
enum Tags {
    /// The switch has no VLANs.
    Kept,
    /// A tag is added.
    Added,
    /// A tag is removed, if there is one.
    Removed,
}

fn lan(tags: Tags, accepts: Accepts) -> Lan {
    let all = || Membership::trunk(1..4095, Some(9));
    let change = move |member: Member| {
        let vlans = match (tags, member.owner.index()) {
            (Tags::Added, 0) => all(),
            (Tags::Added, _) => Membership::trunk(1..4095, None),
            (_, 0) => Membership::trunk(1..4095, None),
            // Frames of VLAN 9 leave without a tag, all others with one.
            _ => all(),
        };
        Member { vlans, ..member }
    };
    let mut lan = Plan { change: Box::new(change), bytes: 1 << 20, ..Plan::new(2) }.map();
    let vlans = !matches!(tags, Tags::Kept);
    let bound = Bound::new(lan.switch.members());
    lan.switch = lan.switch.within(Domain { bound, rules: Rules::ALLOW, vlans });
    lan.sink(1, |kept| kept.accepts = accepts);
    lan
}

/// Checks that every collected frame reached its receiver, in one piece at least, or was counted as dropped.
fn conserve(lan: &Lan, sent: u64, received: usize) {
    let drops = |port: u16| lan.counters(port).drops().map(|(_, count)| count).sum::<u64>();
    assert_eq!(lan.counters(0).in_frames, sent);
    assert_eq!(lan.counters(1).out_frames, received as u64);
    assert!(drops(0) + drops(1) <= sent, "counted twice");
    assert!(received as u64 + drops(0) + drops(1) >= sent, "{sent} frames, {received} received");
}

/// Segmentation handles headers of all lengths, also with a tag added.
#[test]
fn frames_with_headers_of_any_length_are_cut_or_refused() {
    let mut all = Vec::new();
    for tags in 0..4usize {
        for options in 0..11 {
            all.push((tags, None, options));
        }
        for bytes in 0..12u8 {
            all.push((tags, Some(if bytes == 0 { vec![] } else { vec![(60, bytes - 1)] }), 0));
        }
    }
    for (tags, extensions, options) in all {
        for (protocol, words) in (5..16).map(|words| (6, words)).chain([(17, 0)]) {
            for gso in [Gso::Tcp4, Gso::Tcp6, Gso::Udp4Frag, Gso::UdpL4] {
                for way in [Tags::Kept, Tags::Added, Tags::Removed] {
                    // From no tag at all to stacked ones.
                    let tags = vec![(if tags > 2 { 0x88a8 } else { 0x8100 }, 9); tags];
                    let extensions = extensions.clone();
                    let one = Hostile { tags, extensions, options, protocol, words, gso, ..Hostile::default() };
                    let (bytes, offload) = one.build();
                    for accepts in [Accepts::NOTHING, Accepts::CSUM] {
                        let mut lan = lan(way, accepts);
                        lan.offers[0].put_offloaded(&bytes, &[200, 30], Some(offload));
                        lan.pass(0);
                        let received = lan.received_offloaded(1);
                        conserve(&lan, 1, received.len());
                        if lan.counters(0).drops().next().is_none() {
                            assert!(received.len() >= 10, "{} of {one:?} by {way:?}", received.len());
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// For any frame, and any set of offloads that the receiver accepts.
    #[test]
    fn no_frame_ends_a_pass_or_is_lost_without_being_counted(
        sent in proptest::collection::vec((hostile(), proptest::collection::vec(1..300usize, 0..4)), 1..40),
        way in prop_oneof![Just(Tags::Kept), Just(Tags::Added), Just(Tags::Removed)],
        accepts in accepts(),
    ) {
        let mut lan = lan(way, accepts);
        for (one, pieces) in &sent {
            let (bytes, offload) = one.build();
            lan.offers[0].put_offloaded(&bytes, pieces, Some(offload));
        }
        while !lan.offers[0].is_empty() {
            lan.pass(0);
        }
        let received = lan.received_offloaded(1);
        conserve(&lan, sent.len() as u64, received.len());
        prop_assert_eq!(lan.dropped(1, DropReason::BadOffload), 0, "admission finds what cannot be finished");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// A delivered frame has the bytes that policy has judged, for any offload of the sender. In a frame that is not
    /// segmented, only the checksum field of its own transport header may differ, or one behind what policy reads.
    #[test]
    fn what_was_judged_is_what_is_delivered(
        one in hostile(),
        pieces in proptest::collection::vec(1..300usize, 0..4),
        way in prop_oneof![Just(Tags::Kept), Just(Tags::Added), Just(Tags::Removed)],
        accepts in accepts(),
    ) {
        let mut lan = lan(way, accepts);
        let (bytes, offload) = one.build();
        lan.offers[0].put_offloaded(&bytes, &pieces, Some(offload));
        lan.pass(0);
        let read = |frame: &[u8], gso: Gso| if gso == Gso::None { Reading::of(frame) } else { Reading::of_uncut(frame) };
        let judged = read(&bytes, offload.gso);
        for (mut frame, left) in lan.received_offloaded(1) {
            // The receiver completes the checksum itself.
            if let Some(left) = left.as_ref().filter(|left| left.needs_csum) {
                complete(&mut frame, left);
            }
            let tag = |frame: &[u8]| frame.get(12..14) == Some(&[0x81, 0]);
            let told = match way {
                Tags::Added if !tag(&bytes) => [&frame[..12], &frame[16..]].concat(),
                Tags::Removed if tag(&bytes) && frame.len() + 4 <= bytes.len() + 8 && !same_tag(&frame, &bytes) => {
                    [&frame[..12], &bytes[12..16], &frame[12..]].concat()
                }
                _ => frame.clone(),
            };
            let mut found = read(&told, left.map_or(Gso::None, |left| left.gso));
            // Only the first fragment has a transport header.
            if offload.gso == Gso::Udp4Frag && found.transport.is_none() {
                found.transport = judged.transport;
            }
            // A priority tag gets a VLAN ID.
            if judged.tags.first().is_some_and(|tag| tag & 0xfff == 0) && !found.tags.is_empty() {
                found.tags[0] = judged.tags[0];
            }
            prop_assert_eq!(&found, &judged, "{:?}", frame);
            if offload.gso == Gso::None {
                prop_assert_eq!(told.len(), bytes.len());
                let own = one.transport() + match one.protocol { 6 => 16, 17 => 6, _ => 4 };
                let other = |at: &usize| told[*at] != bytes[*at] && !(14..16).contains(at);
                let changed: Vec<usize> = (0..bytes.len()).filter(other).collect();
                // Behind what policy reads, a frame in a tunnel may have a checksum field.
                let may_be_tunnel = !one.arp && !matches!(one.protocol, 6 | 58);
                let is_free = |at: &usize| (own..own + 2).contains(at) || may_be_tunnel && *at >= one.transport() + 8;
                prop_assert!(!one.changes.is_empty() || changed.iter().all(is_free), "{changed:?} but not {own}");
            }
        }
    }
}

/// A frame in a tunnel, and where it differs from what a kernel makes.
#[derive(Clone, Debug)]
struct Lying {
    frame: InTunnel,
    tag: Option<u16>,
    /// Added to the tunnel's UDP header, its inner IP header, `csum_start` and `csum_offset`.
    shifts: [i16; 4],
    other_version: bool,
    /// The tunnel's own packet is said to be the one within it.
    is_own_packet: bool,
    /// The tunnel's port, if none that is known.
    port: Option<u16>,
    gso_size: Option<u16>,
    changes: Vec<(usize, u8)>,
}

impl Lying {
    fn build(&self) -> (Vec<u8>, Offload) {
        let (mut bytes, offload) = self.frame.build();
        if let Some(tag) = self.tag {
            bytes.splice(12..12, [[0x81, 0], tag.to_be_bytes()].concat());
        }
        for &(at, byte) in &self.changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if let Some(port) = self.port {
            let at = self.frame.udp_at() + 2 + bytes.len() - self.frame.build().0.len();
            bytes[at..at + 2].copy_from_slice(&port.to_be_bytes());
        }
        let behind = if self.tag.is_some() { 4 } else { 0 };
        let [udp, inner, start, field] = self.shifts;
        let tunnel = offload.tunnel.map(|tunnel| Tunnel {
            v6: tunnel.v6 != self.other_version,
            udp: (tunnel.udp + behind).wrapping_add_signed(udp),
            inner_ip: (tunnel.inner_ip + behind).wrapping_add_signed(inner),
            ..tunnel
        });
        if let (true, Some(tunnel)) = (self.is_own_packet, tunnel) {
            let tunnel = Some(Tunnel { inner_ip: 14 + behind, ..tunnel });
            return (
                bytes,
                Offload { tunnel, csum_start: tunnel.map_or(0, |tunnel| tunnel.udp), csum_offset: 6, ..offload },
            );
        }
        let offload = Offload {
            tunnel,
            csum_start: (offload.csum_start + behind).wrapping_add_signed(start),
            csum_offset: offload.csum_offset.wrapping_add_signed(field),
            gso_size: self.gso_size.unwrap_or(offload.gso_size),
            ..offload
        };
        (bytes, offload)
    }
}

fn lying() -> impl Strategy<Value = Lying> {
    let shift = || prop_oneof![12 => Just(0i16), 1 => -8..9i16, 1 => any::<i16>()];
    let shifts = [shift(), shift(), shift(), shift()];
    let tag = proptest::option::weighted(0.3, 0..4096u16);
    let gso_size = proptest::option::weighted(0.2, prop_oneof![1..4u16, any::<u16>()]);
    // Most of the changes are in headers.
    let changes = proptest::collection::vec((0..200usize, any::<u8>()), 0..3);
    let changes = prop_oneof![2 => Just(Vec::new()), 1 => changes];
    let options = proptest::option::weighted(0.3, 0..120usize);
    let port = proptest::option::weighted(0.5, any::<u16>());
    let [other_version, is_own_packet] = [0.1, 0.1].map(proptest::bool::weighted);
    let tunnels = (tunnels(), options, port, tag).prop_map(|(frame, options, port, tag)| {
        (InTunnel { options: options.unwrap_or(frame.options), ..frame }, port, tag)
    });
    (tunnels, shifts, other_version, is_own_packet, gso_size, changes).prop_map(
        |((frame, port, tag), shifts, other_version, is_own_packet, gso_size, changes)| Lying {
            frame,
            tag,
            shifts,
            other_version,
            is_own_packet,
            port,
            gso_size,
            changes,
        },
    )
}

/// Any offloads that a receiver may accept, tunnels among them.
fn accepts_tunnels() -> impl Strategy<Value = Accepts> {
    (accepts(), any::<bool>(), any::<bool>()).prop_map(|(all, tunnel, csum)| {
        let one = |is_set, one| if is_set { one } else { Accepts::NOTHING };
        all | one(tunnel, Accepts::TUNNEL) | one(csum, Accepts::TUNNEL_CSUM)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Frames in tunnels, whatever their sender says of them: none is lost without being counted, none is found too late to be wrong, and the
    /// outer headers that policy has judged are those that are delivered.
    #[test]
    fn frames_in_tunnels_are_cut_or_refused_and_keep_what_was_judged(
        one in lying(),
        pieces in proptest::collection::vec(1..600usize, 0..6),
        accepts in accepts_tunnels(),
    ) {
        let mut lan = lan(Tags::Kept, accepts);
        let (bytes, offload) = one.build();
        lan.offers[0].put_offloaded(&bytes, &pieces, Some(offload));
        lan.pass(0);
        let received = lan.received_offloaded(1);
        conserve(&lan, 1, received.len());
        prop_assert_eq!(lan.dropped(1, DropReason::BadOffload), 0, "admission finds what cannot be finished");
        let judged = Reading::of_uncut(&bytes);
        for (frame, left) in received {
            prop_assert!(left.is_none_or(|left| accepts.covers(&left)));
            prop_assert_eq!(&Reading::of_uncut(&frame), &judged);
        }
    }

    /// The same, where a tag is added or removed on the way.
    #[test]
    fn frames_in_tunnels_are_cut_or_refused_in_vlans(
        all in proptest::collection::vec((lying(), proptest::collection::vec(1..600usize, 0..4)), 1..8),
        way in prop_oneof![Just(Tags::Added), Just(Tags::Removed)],
        accepts in accepts_tunnels(),
    ) {
        let mut lan = lan(way, accepts);
        for (one, pieces) in &all {
            let (bytes, offload) = one.build();
            lan.offers[0].put_offloaded(&bytes, pieces, Some(offload));
        }
        while !lan.offers[0].is_empty() {
            lan.pass(0);
        }
        let received = lan.received_offloaded(1);
        conserve(&lan, all.len() as u64, received.len());
        prop_assert_eq!(lan.dropped(1, DropReason::BadOffload), 0, "admission finds what cannot be finished");
    }
}

/// Returns true if a frame still has the tag that it was sent with.
fn same_tag(frame: &[u8], sent: &[u8]) -> bool {
    frame.get(12..14) == sent.get(12..14)
        && frame.get(14..16).is_some_and(|tag| tag[0] & 0x0f == sent[14] & 0x0f && tag[1] == sent[15])
}

/// A length in the IP header that says that no transport header is there hides none: the pieces have it, and policy reads it in
/// the frame.
#[test]
fn a_false_length_in_a_frame_that_is_cut_hides_nothing_from_policy() {
    // One piece each, as etherparse looks for no transport header in one of several fragments.
    let whole = Hostile { gso_size: 2000, ..Hostile::default() };
    let v4 = Hostile { protocol: 6, gso: Gso::Tcp4, changes: vec![(16, 0), (17, 20)], ..whole.clone() };
    let extensions = Some(vec![(0, 0)]);
    let v6 = Hostile { extensions, gso: Gso::Udp4Frag, changes: vec![(18, 0), (19, 8)], ..whole };
    for one in [v4, v6] {
        let (bytes, offload) = one.build();
        assert_eq!(Reading::of(&bytes).transport, None, "by its length there is none");
        let mut lan = lan(Tags::Kept, Accepts::NOTHING);
        lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
        lan.pass(0);
        let received = lan.received(1);
        assert_eq!(received.len(), 1);
        assert_eq!(Reading::of(&received[0]), Reading::of_uncut(&bytes));
        assert!(Reading::of_uncut(&bytes).transport.is_some());
        // What the guard makes of it does not depend on the length.
        let (judged, given) = (Claims::read(&bytes[..128]), Claims::read(&received[0][..128.min(received[0].len())]));
        assert_eq!(judged, given);
    }
}

/// Of 200 frames, the first 150 cannot be segmented once they have a tag.
#[test]
fn frames_behind_many_that_cannot_be_finished_arrive() {
    let bad = Hostile { gso: Gso::Udp4Frag, ..Hostile::default() };
    for (tags, stretch) in [(0, 6), (1, 6), (2, 6), (3, 5)] {
        let bad = Hostile { tags: vec![(0x88a8, 9); tags], extensions: Some(vec![(60, stretch)]), ..bad.clone() };
        let good = Hostile { extensions: None, ..bad.clone() };
        let mut lan = lan(Tags::Added, Accepts::NOTHING);
        for number in 0..200 {
            let (bytes, offload) = if number < 150 { bad.build() } else { good.build() };
            lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
        }
        while !lan.offers[0].is_empty() {
            lan.pass(0);
        }
        let received = lan.received(1).len();
        conserve(&lan, 200, received);
        assert!(received >= 50 * 10, "{received} pieces of 50 frames behind {tags} tags");
    }
}
