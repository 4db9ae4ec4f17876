//! What the first bytes of a frame say of the flow that it belongs to.

use crate::address::Address;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Reads a protocol: `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
#[must_use]
pub fn protocol(text: &str) -> Option<u8> {
    match text {
        "tcp" => Some(TCP),
        "udp" => Some(UDP),
        "icmp" => Some(ICMP),
        "icmpv6" => Some(ICMPV6),
        number => number.parse().ok(),
    }
}

const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
/// More extension headers than this are not read.
const MOST_EXTENSIONS: usize = 8;

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

/// The EtherType behind at most two VLAN tags, and where what follows begins.
#[inline]
#[must_use]
pub fn ether_type(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    let mut kind = u16_at(frame, at)?;
    for _ in 0..2 {
        if VLAN_TAGS.contains(&kind) {
            at += 4;
            kind = u16_at(frame, at)?;
        }
    }
    Some((kind, at + 2))
}

/// The flow that a frame of IPv4 or IPv6 belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Source address.
    pub source: Address,
    /// Destination address.
    pub destination: Address,
    /// Protocol above IP; of IPv6 behind the extension headers.
    pub protocol: u8,
    /// Source port; 0 if the protocol has none, or in fragments but the first.
    pub source_port: u16,
    /// Destination port; as the source port.
    pub destination_port: u16,
    /// A fragment of a packet.
    pub is_fragment: bool,
    /// A fragment of a packet, but not its first: ports are not in it.
    pub is_later_fragment: bool,
    /// Where the header of the protocol begins in the frame.
    pub transport: usize,
}

impl Flow {
    /// Reads a frame, or its first bytes ([`Frame::bytes`](crate::Frame::bytes)). `None` if it is no IP, or if a header is damaged or not within these
    /// bytes: 96 are enough for most frames, 60 without VLAN, options and extension headers.
    #[inline]
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Flow> {
        match ether_type(frame)? {
            (IPV4, at) => Flow::read_v4(frame, at),
            (IPV6, at) => Flow::read_v6(frame, at),
            _ => None,
        }
    }

    /// Returns true if two frames, or their first bytes, are certainly of the same flow: a few words are compared. Finds UDP and TCP over IPv4 and
    /// IPv6, without VLAN tags, options, fragments and extension headers; of other frames it says false.
    #[inline]
    #[must_use]
    pub fn is_same(one: &[u8], other: &[u8]) -> bool {
        // EtherType, version, length of the header; fragment, protocol; addresses, ports.
        const V4: [u64; 4] = [0xff_ffff, 0xffff_0000_ff00_ffff, u64::MAX, 0xffff];
        // EtherType, version; next header, addresses; addresses, ports.
        const V6: [u64; 6] = [0xf0_ffff, 0xffff_ffff_ffff_00ff, u64::MAX, u64::MAX, u64::MAX, 0xffff_ffff_ffff];
        let (head, like) = match (array::<26>(one, 12), array::<26>(other, 12)) {
            (Some(head), Some(like)) => (head, like),
            _ => return false,
        };
        let begin = word(&head, 0);
        if begin & V4[0] == 0x45_0008 {
            let is_whole = head[8] & 0x3f == 0 && head[9] == 0;
            return is_whole && matches!(head[11], TCP | UDP) && are_alike(&head, &like, &V4);
        }
        match (array::<46>(one, 12), array::<46>(other, 12)) {
            (Some(head), Some(like)) if begin & V6[0] == 0x60_dd86 => {
                matches!(head[8], TCP | UDP) && are_alike(&head, &like, &V6)
            }
            _ => false,
        }
    }

    #[inline]
    fn read_v4(frame: &[u8], at: usize) -> Option<Flow> {
        let header: [u8; 20] = array(frame, at)?;
        let length = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || length < 20 {
            return None;
        }
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
        Flow {
            source: Address::v4([header[12], header[13], header[14], header[15]]),
            destination: Address::v4([header[16], header[17], header[18], header[19]]),
            protocol: header[9],
            source_port: 0,
            destination_port: 0,
            is_fragment: fragment != 0,
            is_later_fragment: fragment & 0x1fff != 0,
            transport: at + length,
        }
        .with_ports(frame)
    }

    fn read_v6(frame: &[u8], at: usize) -> Option<Flow> {
        let header: [u8; 8] = array(frame, at)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut flow = Flow {
            source: Address::v6(array(frame, at + 8)?),
            destination: Address::v6(array(frame, at + 24)?),
            protocol: header[6],
            source_port: 0,
            destination_port: 0,
            is_fragment: false,
            is_later_fragment: false,
            transport: at + 40,
        };
        for _ in 0..MOST_EXTENSIONS {
            let unit = match flow.protocol {
                // Hop-by-hop options, routing, destination options (RFC 8200, 4), mobility, HIP, Shim6.
                0 | 43 | 60 | 135 | 139 | 140 => 8,
                // Authentication header (RFC 4302, 2.2), which counts in units of 4 bytes, less 2.
                51 => 4,
                44 => {
                    let [next, _, high, low] = array(frame, flow.transport)?;
                    let (offset, more) = (u16::from_be_bytes([high, low]) >> 3, low & 1 != 0);
                    flow.is_fragment |= more || offset != 0;
                    flow.is_later_fragment = offset != 0;
                    flow.protocol = next;
                    flow.transport += 8;
                    if flow.is_later_fragment {
                        return Some(flow);
                    }
                    continue;
                }
                _ => return flow.with_ports(frame),
            };
            let [next, length] = array(frame, flow.transport)?;
            flow.protocol = next;
            flow.transport += 8 + usize::from(length) * unit;
        }
        None
    }

    /// Adds the ports of a protocol that has ports in its first four bytes: TCP, UDP, DCCP, SCTP, UDP-Lite.
    #[inline]
    fn with_ports(mut self, frame: &[u8]) -> Option<Flow> {
        if matches!(self.protocol, TCP | UDP | 33 | 132 | 136) && !self.is_later_fragment {
            let [a, b, c, d] = array(frame, self.transport)?;
            self.source_port = u16::from_be_bytes([a, b]);
            self.destination_port = u16::from_be_bytes([c, d]);
        }
        Some(self)
    }

    /// The flow as the key of a [`Table`](crate::Table) or [`Cache`](crate::Cache).
    #[inline]
    #[must_use]
    pub fn key(&self) -> [u64; 5] {
        Flow::key_of(self.source, self.destination, self.protocol, self.source_port, self.destination_port)
    }

    /// The key that a flow of these values has. With the bits of masks instead, it says which bits of a key they cover.
    #[inline]
    #[must_use]
    pub fn key_of(
        source: Address,
        destination: Address,
        protocol: u8,
        source_port: u16,
        destination_port: u16,
    ) -> [u64; 5] {
        let Address(a, b) = source;
        let Address(c, d) = destination;
        [a, b, c, d, u64::from(protocol) << 32 | u64::from(source_port) << 16 | u64::from(destination_port)]
    }

    /// The same key for both directions of a connection.
    #[inline]
    #[must_use]
    pub fn connection(&self) -> [u64; 5] {
        if (self.source, self.source_port) <= (self.destination, self.destination_port) {
            self.key()
        } else {
            Flow::key_of(self.destination, self.source, self.protocol, self.destination_port, self.source_port)
        }
    }
}

/// Returns true if two keys are the same. The compiler's own comparison of arrays looks at each byte.
#[inline]
pub(crate) fn are_equal<const N: usize>(one: &[u64; N], other: &[u64; N]) -> bool {
    one.iter().zip(other).fold(0, |unlike, (one, other)| unlike | (one ^ other)) == 0
}

/// A word of eight bytes, or those that are left.
#[inline]
fn word<const N: usize>(bytes: &[u8; N], word: usize) -> u64 {
    let mut part = [0; 8];
    let (begin, end) = (word * 8, (word * 8 + 8).min(N));
    part[..end - begin].copy_from_slice(&bytes[begin..end]);
    u64::from_le_bytes(part)
}

/// Returns true if two arrays have the same bits where the words of `masks` have ones.
#[inline]
fn are_alike<const N: usize, const WORDS: usize>(one: &[u8; N], other: &[u8; N], masks: &[u64; WORDS]) -> bool {
    let unlike = |at: usize| (word(one, at) ^ word(other, at)) & masks[at];
    (0..WORDS).fold(0, |all, at| all | unlike(at)) == 0
}

/// A number that depends on all words. With a random seed, a sender cannot easily choose keys that have the same.
#[inline]
#[must_use]
pub fn hash<const N: usize>(key: &[u64; N], seed: u64) -> u64 {
    let mut sum = seed;
    for word in key {
        sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 29;
    }
    sum = sum.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    sum ^ sum >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &kind.to_be_bytes(), rest].concat()
    }

    fn ipv4(protocol: u8, offset: u16, rest: &[u8]) -> Vec<u8> {
        let [high, low] = offset.to_be_bytes();
        [&[0x45, 0, 0, 0, 0, 0, high, low, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2], rest].concat()
    }

    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        [&[0x60, 0, 0, 0, 0, 0, next, 64][..], &[1; 16], &[2; 16], rest].concat()
    }

    const PORTS: [u8; 4] = [0x30, 0x39, 0, 80];

    #[test]
    fn the_flow_of_tcp_over_ipv4_has_addresses_and_ports() {
        let flow = Flow::read(&ethernet(IPV4, &ipv4(TCP, 0x4000, &PORTS))).unwrap();
        assert_eq!((flow.source, flow.destination), (Address::v4([10, 0, 0, 1]), Address::v4([10, 0, 0, 2])));
        assert_eq!((flow.protocol, flow.source_port, flow.destination_port, flow.transport), (TCP, 12345, 80, 34));
        assert!(!flow.is_fragment, "the flag of IPv4 that forbids fragments makes none");
    }

    #[test]
    fn vlan_tags_options_and_extension_headers_are_skipped() {
        let tagged = [&[0, 5, 0x81, 0, 0, 6, 8, 0][..], &ipv4(UDP, 0, &PORTS)].concat();
        assert_eq!(Flow::read(&ethernet(0x88a8, &tagged)).unwrap().transport, 42);
        let mut options = ipv4(UDP, 0, &[&[1; 8][..], &PORTS].concat());
        options[0] = 0x47;
        assert_eq!(Flow::read(&ethernet(IPV4, &options)).unwrap().destination_port, 80);
        let extensions = [&[51, 1][..], &[0; 14], &[UDP, 2], &[0; 14], &PORTS].concat();
        let flow = Flow::read(&ethernet(IPV6, &ipv6(0, &extensions))).unwrap();
        assert_eq!((flow.protocol, flow.destination_port, flow.transport), (UDP, 80, 86));
    }

    #[test]
    fn frames_that_are_the_same_flow_are_found_and_no_others() {
        let v4 = ethernet(IPV4, &[&ipv4(UDP, 0x4000, &PORTS)[..], &[0; 22]].concat());
        let v6 = ethernet(IPV6, &[&ipv6(TCP, &PORTS)[..], &[0; 2]].concat());
        for frame in [&v4, &v6] {
            let flow = Flow::read(frame).unwrap();
            assert!(Flow::is_same(frame, frame));
            let mut found = 0;
            for bit in 0..frame.len() * 8 {
                let mut other = frame.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let is_same = Flow::read(&other) == Some(flow);
                assert!(is_same || !Flow::is_same(frame, &other) && !Flow::is_same(&other, frame), "bit {bit}");
                found += usize::from(is_same && Flow::is_same(frame, &other));
            }
            assert!(found >= 160, "{found}");
            let end = if frame == &v4 { 38 } else { 58 };
            for end in 0..end {
                assert!(!Flow::is_same(frame, &frame[..end]) && !Flow::is_same(&frame[..end], frame), "{end}");
            }
            assert!(Flow::is_same(&frame[..end], frame));
        }
        for other in [ipv4(UDP, 1, &PORTS), ipv4(UDP, 0x2000, &PORTS), ipv4(ICMP, 0, &PORTS), ipv6(44, &[0; 20])] {
            let kind = if other[0] == 0x45 { IPV4 } else { IPV6 };
            let frame = ethernet(kind, &other);
            assert!(!Flow::is_same(&frame, &frame), "{other:?}");
        }
    }

    #[test]
    fn a_later_fragment_has_no_ports_whatever_its_bytes_say() {
        let flow = Flow::read(&ethernet(IPV4, &ipv4(UDP, 1, &PORTS))).unwrap();
        assert!(flow.is_later_fragment && flow.source_port == 0 && flow.destination_port == 0);
        let flow = Flow::read(&ethernet(IPV6, &ipv6(44, &[&[UDP, 0, 0, 8, 0, 0, 0, 0][..], &PORTS].concat()))).unwrap();
        assert!(flow.is_later_fragment && flow.protocol == UDP && flow.destination_port == 0);
        let first = Flow::read(&ethernet(IPV4, &ipv4(UDP, 0x2000, &PORTS))).unwrap();
        assert!(first.is_fragment && !first.is_later_fragment && first.destination_port == 80);
        let first = ipv6(44, &[&[UDP, 0, 0, 1, 0, 0, 0, 0][..], &PORTS].concat());
        let first = Flow::read(&ethernet(IPV6, &first)).unwrap();
        assert!(first.is_fragment && !first.is_later_fragment && first.destination_port == 80);
    }

    #[test]
    fn a_frame_that_ends_early_has_no_flow_at_any_length() {
        let extensions = [&[51, 1][..], &[0; 14], &[TCP, 255], &[0; 14], &PORTS].concat();
        let whole = [
            ethernet(IPV4, &ipv4(TCP, 0, &PORTS)),
            ethernet(IPV6, &ipv6(UDP, &PORTS)),
            ethernet(IPV6, &ipv6(0, &extensions)),
        ];
        for frame in &whole {
            for end in 0..frame.len() {
                assert_eq!(Flow::read(&frame[..end]), None, "{end}");
            }
        }
        assert!(Flow::read(&whole[0]).is_some() && Flow::read(&whole[1]).is_some() && Flow::read(&whole[2]).is_none());
    }

    #[test]
    fn wrong_headers_and_endless_extensions_have_no_flow() {
        for (place, value) in [(14, 0x44), (14, 0x35)] {
            let mut frame = ethernet(IPV4, &ipv4(TCP, 0, &PORTS));
            frame[place] = value;
            assert_eq!(Flow::read(&frame), None);
        }
        assert_eq!(Flow::read(&ethernet(IPV6, &ipv6(0, &[0; 400]))), None);
        assert_eq!(Flow::read(&ethernet(ARP, &[0; 40])), None);
        assert_eq!(Flow::read(&ethernet(0x8100, &[0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 8, 0])), None);
    }

    #[test]
    fn both_directions_are_one_connection() {
        let forward = Flow::read(&ethernet(IPV4, &ipv4(TCP, 0, &PORTS))).unwrap();
        let back = Flow {
            source: forward.destination,
            destination: forward.source,
            source_port: forward.destination_port,
            destination_port: forward.source_port,
            ..forward
        };
        assert!(forward.key() != back.key() && forward.connection() == back.connection());
        let other = Flow { destination_port: 81, ..forward };
        assert!(other.connection() != forward.connection());
    }

    #[test]
    fn a_hash_depends_on_every_word_and_on_the_seed() {
        let key = [1, 2, 3, 4, 5];
        let mut hashes: Vec<u64> = (0..5).map(|word| hash(&key.map(|n| n + u64::from(n == word + 1)), 7)).collect();
        hashes.extend([hash(&key, 7), hash(&key, 8)]);
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 7);
        // Spread over the low bits, which choose a slot.
        let mut slots: Vec<u64> = (0..4096).map(|n| hash(&[n << 16, 0], 3) & 4095).collect();
        slots.sort_unstable();
        slots.dedup();
        assert!((2400..2800).contains(&slots.len()), "{}", slots.len());
    }
}
