//! Tests of segments in UDP tunnels.

use etherparse::{IpNumber, IpSlice, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader};
use proptest::prelude::*;

use super::finish_tests::{lan, samples};
use crate::Tunnel;
use crate::frame::headers::on_a_wire;
use crate::testing::mac;
use crate::testing::samples::{Sample, complete};
use crate::{Accepts, Gso, Offload};

const ETHERNET: usize = 14;

/// A frame in a tunnel.
#[derive(Clone, Debug, Default)]
pub(super) struct InTunnel {
    pub(super) sample: Sample,
    pub(super) v6: bool,
    pub(super) csum: bool,
    /// Words of options behind the eight bytes of the tunnel's own header.
    pub(super) options: usize,
}

impl InTunnel {
    pub(super) fn udp_at(&self) -> usize {
        ETHERNET + if self.v6 { 40 } else { 20 }
    }

    fn inner_at(&self) -> usize {
        self.udp_at() + 8 + 8 + 4 * self.options
    }

    fn ip(&self, len: usize, id: u16) -> Vec<u8> {
        if self.v6 {
            let flow_label = Ipv6FlowLabel::try_new(7).expect("fits");
            let (source, destination) = ([3; 16], [4; 16]);
            let (next_header, payload_length) = (IpNumber::UDP, len as u16);
            Ipv6Header { traffic_class: 1, flow_label, payload_length, next_header, hop_limit: 9, source, destination }
                .to_bytes()
                .to_vec()
        } else {
            let mut header = Ipv4Header::new(len as u16, 9, IpNumber::UDP, [10, 1, 0, 3], [10, 1, 0, 4]).expect("fits");
            header.identification = id;
            header.header_checksum = header.calc_header_checksum();
            header.to_bytes().to_vec()
        }
    }

    pub(super) fn build(&self) -> (Vec<u8>, Offload) {
        let (inner, offload) = self.sample.build();
        let len = 8 + 8 + 4 * self.options + inner.len();
        let mut frame: Vec<u8> = mac(1).octets().into_iter().chain(mac(0).octets()).collect();
        frame.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(self.ip(len, self.sample.id ^ 3));
        // The sum of the pseudo-header, not inverted.
        let addresses: usize = if self.v6 { 8 * (0x0303 + 0x0404) } else { 2 * 0x0a01 + 3 + 4 };
        let sum = addresses + 17 + len;
        let checksum = if self.csum { ((sum & 0xffff) + (sum >> 16)) as u16 } else { 0 };
        let udp = UdpHeader { source_port: 5, destination_port: 4789, length: len as u16, checksum };
        frame.extend(udp.to_bytes());
        frame.extend((0..8 + 4 * self.options).map(|at| at as u8 ^ 0x5a));
        frame.extend(inner);
        let shift = self.inner_at() as u16;
        let inner_ip = shift + (ETHERNET + 4 * self.sample.tags) as u16;
        let tunnel = Tunnel { v6: self.v6, csum: self.csum, udp: self.udp_at() as u16, inner_ip };
        let (csum_start, hdr_len) = (offload.csum_start + shift, offload.hdr_len + shift);
        (frame, Offload { csum_start, hdr_len, tunnel: Some(tunnel), ..offload })
    }

    /// Asserts that these frames are complete, and returns what is in the tunnel.
    fn check(&self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (whole, _) = self.build();
        let own = self.udp_at() + 8..self.inner_at();
        let check = |(number, frame): (usize, &Vec<u8>)| {
            assert_eq!(frame[..ETHERNET], whole[..ETHERNET]);
            assert_eq!(frame[own.clone()], whole[own.clone()], "the tunnel's own header");
            let len = frame.len() - self.udp_at();
            let id = (self.sample.id ^ 3).wrapping_add(number as u16);
            assert_eq!(frame[ETHERNET..self.udp_at()], self.ip(len, id));
            let ip = IpSlice::from_slice(&frame[ETHERNET..]).expect("IP");
            let (udp, data) = UdpHeader::from_slice(ip.payload().payload).expect("UDP");
            assert_eq!((usize::from(udp.length), udp.source_port, udp.destination_port), (len, 5, 4789));
            let right = match (self.csum, self.v6) {
                (false, _) => 0,
                (true, true) => udp.calc_checksum_ipv6_raw([3; 16], [4; 16], data).expect("a length"),
                (true, false) => udp.calc_checksum_ipv4_raw([10, 1, 0, 3], [10, 1, 0, 4], data).expect("a length"),
            };
            assert_eq!(udp.checksum, right);
            frame[self.inner_at()..].to_vec()
        };
        frames.iter().enumerate().map(check).collect()
    }
}

/// Frames in tunnels, as a kernel makes them.
pub(super) fn tunnels() -> impl Strategy<Value = InTunnel> {
    let sample = samples()
        .prop_filter("what a kernel puts into a tunnel", |sample| !matches!(sample.gso, Gso::None | Gso::Udp4Frag));
    (sample, any::<bool>(), any::<bool>(), 0..=63_usize).prop_map(|(sample, v6, csum, options)| {
        // Most tunnels have few options.
        InTunnel { sample, v6, csum, options: options.saturating_sub(40) * 2 }
    })
}

const ALL: [Accepts; 7] =
    [Accepts::CSUM, Accepts::TSO4, Accepts::TSO6, Accepts::ECN, Accepts::USO, Accepts::TUNNEL, Accepts::TUNNEL_CSUM];

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    /// For any set of accepted offloads and any division into pieces.
    #[test]
    fn segments_in_a_tunnel_arrive_complete_or_as_they_were(
        frame in tunnels(),
        accepted in proptest::collection::vec(proptest::bool::weighted(0.8), 7),
        pieces in proptest::collection::vec(1..3000usize, 0..20),
    ) {
        let accepts = ALL.into_iter().zip(accepted).filter(|(_, yes)| *yes).fold(Accepts::NOTHING, |set, (one, _)| set | one);
        let mut lan = lan(2);
        lan.sink(1, |kept| kept.accepts = accepts);
        let (bytes, offload) = frame.build();
        lan.offers[0].put_offloaded(&bytes, &pieces, Some(offload));
        lan.pass(0);
        prop_assert_eq!(lan.counters(0).drops().collect::<Vec<_>>(), []);
        let received = lan.received_offloaded(1);
        if accepts.covers(&offload) {
            prop_assert_eq!(received, [(bytes, Some(offload))]);
            return Ok(());
        }
        prop_assert!(received.iter().flat_map(|(_, left)| left).all(|left| accepts.covers(left)));
        let finished: Vec<_> = received.into_iter().map(|(mut bytes, left)| {
            left.iter().for_each(|left| complete(&mut bytes, left));
            bytes
        }).collect();
        frame.sample.check(&frame.check(&finished));
        let head = std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0));
        let (frames, headers) = on_a_wire(&head, bytes.len(), &offload);
        prop_assert_eq!(frames, finished.len() as u64);
        prop_assert_eq!(bytes.len() as u64 + headers, finished.iter().map(|one| one.len() as u64).sum::<u64>());
    }
}
