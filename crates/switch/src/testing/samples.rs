//! Frames with offloads, and a check of the results by an independent implementation of the protocols (etherparse).

use etherparse::{
    IpNumber, IpSlice, Ipv4Header, Ipv4Options, Ipv6FlowLabel, Ipv6Header, Ipv6RawExtHeader, TcpHeader, TcpSlice,
    UdpHeader,
};

use crate::testing::mac;
use crate::{Gso, Offload};

const ETHERNET: usize = 14;

/// A frame of TCP or UDP over IP.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// VLAN tags: up to two.
    pub(crate) tags: usize,
    pub(crate) v6: bool,
    /// Words of IPv4 options, or pairs of words of IPv6 extension headers.
    pub(crate) ip_options: usize,
    pub(crate) tcp_options: usize,
    /// All flags of the TCP header except the reserved ones.
    pub(crate) flags: u8,
    pub(crate) gso: Gso,
    /// TCP or UDP, if `gso` is `None`.
    pub(crate) tcp: bool,
    pub(crate) gso_size: u16,
    pub(crate) payload: Vec<u8>,
    pub(crate) id: u16,
    pub(crate) sequence: u32,
}

impl Default for Sample {
    fn default() -> Self {
        Sample {
            tags: 0,
            v6: false,
            ip_options: 0,
            tcp_options: 3,
            flags: 0x18,
            gso: Gso::Tcp4,
            tcp: true,
            gso_size: 1448,
            payload: (0..5000u32).map(|n| ((n * n) >> 4) as u8).collect(),
            id: 65_530,
            sequence: u32::MAX - 2000,
        }
    }
}

impl Sample {
    fn is_tcp(&self) -> bool {
        match self.gso {
            Gso::None => self.tcp,
            Gso::Tcp4 | Gso::Tcp6 => true,
            Gso::Udp4Frag | Gso::UdpL4 => false,
        }
    }

    fn transport_at(&self) -> usize {
        let ip = if self.v6 { 40 + 8 * self.ip_options } else { 20 + 4 * self.ip_options };
        ETHERNET + 4 * self.tags + ip
    }

    /// Where the payload begins.
    pub(crate) fn payload_at(&self) -> usize {
        self.transport_at() + if self.is_tcp() { 20 + 4 * self.tcp_options } else { 8 }
    }

    fn v4_header(&self, len: usize) -> Ipv4Header {
        let protocol = if self.is_tcp() { IpNumber::TCP } else { IpNumber::UDP };
        let mut header = Ipv4Header::new(len as u16, 64, protocol, [10, 0, 0, 1], [10, 0, 0, 2]).expect("fits");
        header.identification = self.id;
        // A time stamp (not for later fragments) or a stream number (for all), and no-operations.
        let kind = if self.id & 1 == 0 { 0x44 } else { 0x88 };
        let options: Vec<u8> = [kind, 4, 5, 6].into_iter().chain([1; 36]).take(4 * self.ip_options).collect();
        header.options = Ipv4Options::try_from(options.as_slice()).expect("whole words");
        header.set_payload_len(len).expect("fits");
        header
    }

    fn ip(&self, len: usize) -> Vec<u8> {
        if !self.v6 {
            let mut header = self.v4_header(len);
            header.header_checksum = header.calc_header_checksum();
            return header.to_bytes().to_vec();
        }
        let protocol = if self.is_tcp() { IpNumber::TCP } else { IpNumber::UDP };
        let kinds = [IpNumber::IPV6_HEADER_HOP_BY_HOP, IpNumber::IPV6_DESTINATION_OPTIONS];
        let kinds: Vec<IpNumber> = kinds.into_iter().take(self.ip_options).chain([protocol]).collect();
        let header = Ipv6Header {
            traffic_class: 3,
            flow_label: Ipv6FlowLabel::try_new(0x12345).expect("fits"),
            payload_length: (len + 8 * self.ip_options) as u16,
            next_header: kinds[0],
            hop_limit: 64,
            source: [1; 16],
            destination: [2; 16],
        };
        let mut bytes = header.to_bytes().to_vec();
        for &next in &kinds[1..] {
            // Padding (RFC 8200, 4.2).
            bytes.extend(Ipv6RawExtHeader::new_raw(next, &[1, 4, 0, 0, 0, 0]).expect("fits").to_bytes());
        }
        bytes
    }

    fn pseudo_sum(&self, len: usize) -> u16 {
        let addresses = if self.v6 { 8 * (0x0101 + 0x0202) } else { 2 * 0x0a00 + 1 + 2 };
        let mut sum = addresses + if self.is_tcp() { 6 } else { 17 } + len;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The frame as its sender passes it on, and its offload.
    pub(crate) fn build(&self) -> (Vec<u8>, Offload) {
        let transport = if self.is_tcp() {
            let mut tcp = TcpHeader::new(1000, 2000, self.sequence, 512);
            tcp.set_options_raw(&[1; 40][..4 * self.tcp_options]).expect("fits");
            let mut bytes = tcp.to_bytes().to_vec();
            bytes[13] = self.flags;
            bytes
        } else {
            let length = (8 + self.payload.len()) as u16;
            UdpHeader { source_port: 1000, destination_port: 2000, length, checksum: 0 }.to_bytes().to_vec()
        };
        let len = transport.len() + self.payload.len();
        let mut frame: Vec<u8> = mac(1).octets().into_iter().chain(mac(0).octets()).collect();
        for tag in 0..self.tags {
            frame.extend(if tag == 0 && self.tags == 2 { [0x88, 0xa8, 0, 5] } else { [0x81, 0, 0x60, 7] });
        }
        frame.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(self.ip(len));
        assert_eq!(frame.len(), self.transport_at());
        frame.extend(transport);
        assert_eq!(frame.len(), self.payload_at());
        frame.extend(&self.payload);
        let csum_offset = if self.is_tcp() { 16 } else { 6 };
        let field = self.transport_at() + usize::from(csum_offset);
        frame[field..field + 2].copy_from_slice(&self.pseudo_sum(len).to_be_bytes());
        let (gso_size, hdr_len) = match self.gso {
            Gso::None => (0, 0),
            _ => (self.gso_size, self.payload_at() as u16),
        };
        let csum_start = self.transport_at() as u16;
        let ecn = matches!(self.gso, Gso::Tcp4 | Gso::Tcp6) && self.flags & 0x80 != 0;
        (
            frame,
            Offload { needs_csum: true, gso: self.gso, ecn, hdr_len, gso_size, csum_start, csum_offset, tunnel: None },
        )
    }

    /// Asserts that these frames are the complete segments of the sample: every length, number and checksum.
    pub(crate) fn check(&self, frames: &[Vec<u8>]) {
        let (whole, _) = self.build();
        let ip_at = ETHERNET + 4 * self.tags;
        let (mut payload, mut fragments) = (Vec::<u8>::new(), Vec::<u8>::new());
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(frame[..ip_at], whole[..ip_at], "Ethernet header and tags");
            let (first, last) = (number == 0, number + 1 == frames.len());
            let ip = IpSlice::from_slice(&frame[ip_at..]).expect("IP");
            if let Some(v4) = ip.ipv4() {
                let header = v4.header().to_header();
                // Both forms of zero are right here, too.
                assert_eq!(header.header_checksum % 0xffff, header.calc_header_checksum() % 0xffff);
                assert_eq!(usize::from(header.total_len), frame.len() - ip_at);
                let mut expected = self.v4_header(0);
                (expected.total_len, expected.header_checksum) = (header.total_len, header.header_checksum);
                if self.gso == Gso::Udp4Frag {
                    expected.fragment_offset = ((fragments.len() / 8) as u16).try_into().expect("fits");
                    expected.more_fragments = !last;
                    (expected.dont_fragment, expected.time_to_live) = (false, 64);
                    if !first && self.id & 1 == 0 {
                        let blank = vec![1; 4 * self.ip_options];
                        expected.options = blank.as_slice().try_into().expect("whole words");
                    }
                } else {
                    expected.identification = self.id.wrapping_add(number as u16);
                }
                assert_eq!(header, expected);
            } else {
                let v6 = ip.ipv6().expect("IPv6");
                assert_eq!(usize::from(v6.header().payload_length()), frame.len() - ip_at - 40);
                let whole = Ipv6Header::from_slice(&whole[ip_at..]).expect("IPv6").0;
                let same = Ipv6Header { payload_length: whole.payload_length, ..v6.header().to_header() };
                assert_eq!(Ipv6Header { next_header: whole.next_header, ..same }, whole);
            }
            if self.gso == Gso::Udp4Frag {
                assert!(last || ip.payload().payload.len() == usize::from(self.gso_size) / 8 * 8);
                if let Some(v6) = ip.ipv6() {
                    let extension = v6.extensions().clone().into_iter().find_map(|extension| match extension {
                        etherparse::Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment.to_header()),
                        _ => None,
                    });
                    let extension = extension.expect("a fragment header");
                    assert_eq!(usize::from(extension.fragment_offset.value()) * 8, fragments.len());
                    assert_eq!((extension.more_fragments, extension.next_header), (!last, IpNumber::UDP));
                }
                fragments.extend(ip.payload().payload);
                continue;
            }
            payload.extend(self.check_transport(&ip, &whole, payload.len(), first, last));
        }
        if self.gso == Gso::Udp4Frag {
            let (udp, data) = UdpHeader::from_slice(&fragments).expect("UDP");
            assert_eq!(usize::from(udp.length), fragments.len());
            self.check_udp_sum(&udp, data);
            payload.extend(data);
        }
        assert!(payload == self.payload, "{} of {} bytes came, or others", payload.len(), self.payload.len());
    }

    fn check_transport<'a>(&self, ip: &IpSlice<'a>, whole: &[u8], at: usize, first: bool, last: bool) -> &'a [u8] {
        let bytes = ip.payload().payload;
        let data = if self.is_tcp() {
            let tcp = TcpSlice::from_slice(bytes).expect("TCP");
            let sum = match ip {
                IpSlice::Ipv4(ip) => tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()),
                IpSlice::Ipv6(ip) => tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()),
            };
            // Both forms of zero are right; Linux writes this one, too.
            let sum = match sum.expect("a length") {
                0 => 0xffff,
                sum => sum,
            };
            assert_eq!(tcp.checksum(), sum);
            assert_eq!(tcp.sequence_number(), self.sequence.wrapping_add(at as u32));
            let (fin_psh, cwr) = (if last { 0 } else { 9 }, if first { 0 } else { 0x80 });
            assert_eq!(bytes[13], self.flags & !fin_psh & !cwr);
            let (ours, theirs) = (&bytes[..tcp.header_len()], &whole[self.transport_at()..self.payload_at()]);
            for unchanged in [0..4, 8..13, 14..16, 18..ours.len()] {
                assert_eq!(ours[unchanged.clone()], theirs[unchanged]);
            }
            tcp.payload()
        } else {
            let (udp, data) = UdpHeader::from_slice(bytes).expect("UDP");
            assert_eq!((usize::from(udp.length), udp.source_port, udp.destination_port), (bytes.len(), 1000, 2000));
            self.check_udp_sum(&udp, data);
            data
        };
        let size = if self.gso == Gso::None { self.payload.len() } else { self.gso_size.into() };
        assert!(data.len() == size || (last && data.len() <= size), "{} of {size} bytes", data.len());
        data
    }

    fn check_udp_sum(&self, udp: &UdpHeader, data: &[u8]) {
        let sum = if self.v6 {
            udp.calc_checksum_ipv6_raw([1; 16], [2; 16], data)
        } else {
            udp.calc_checksum_ipv4_raw([10, 0, 0, 1], [10, 0, 0, 2], data)
        };
        assert_eq!(udp.checksum, sum.expect("a length"));
    }
}

/// Completes a frame's checksum as its receiver would.
pub(crate) fn complete(frame: &mut [u8], offload: &Offload) {
    let mut sum = 0u32;
    for pair in frame[offload.csum_start.into()..].chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let field = usize::from(offload.csum_start + offload.csum_offset);
    let sum = if sum == 0xffff { 0xffff } else { !(sum as u16) };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}
