//! Checksums and segmentation as the device is asked for them: by a context descriptor and bits of the data descriptors behind it (8254x
//! manual, 3.3.5 to 3.5; 82574 datasheet, 7.2.5 to 7.3).

use ringway_abi::Offload;
use ringway_abi::e1000::transmit::{DATA, DEXT, IPV4, IXSM, TCP, TSE, TXSM};
use ringway_abi::offload::Gso;

/// Most bytes of the headers of a frame to be segmented: Ethernet with a VLAN tag, IPv4 and TCP with all options.
pub const HEADERS: usize = 18 + 60 + 60;

const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4_TYPE: [u8; 2] = [0x08, 0x00];
const VLAN_TYPE: [u8; 2] = [0x81, 0x00];
/// Offsets in an IPv4 header.
const IP_LENGTH: usize = 2;
const IP_PROTOCOL: usize = 9;
const IP_SUM: usize = 10;
const IP_ADDRESSES: usize = 12;
/// Offsets in a TCP header.
const TCP_HEADER: usize = 12;
const TCP_SUM: usize = 16;
const TCP_PROTOCOL: u8 = 6;

/// What a frame asks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The context descriptor.
    pub context: [u64; 2],
    /// Bits of the data descriptors.
    pub data: u64,
    /// The headers of a frame to be segmented, which take the place of the frame's own.
    pub headers: Option<Headers>,
}

/// Headers as the device wants them: without lengths, which it completes for each segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    bytes: [u8; HEADERS],
    len: usize,
}

impl Headers {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Request {
    /// Returns what an offload asks of the device, or `None` if the device cannot do it or the frame is not as the offload says.
    pub fn of(frame: &[u8], offload: &Offload) -> Option<Request> {
        let start = usize::from(offload.csum_start);
        let field = start.checked_add(usize::from(offload.csum_offset))?;
        if !offload.needs_csum || field.checked_add(2)? > frame.len() || field > 0xff {
            return None;
        }
        // The sum ends with the frame: an end of 0.
        let sum = (start as u64) << 32 | (field as u64) << 40;
        match offload.gso {
            Gso::None => Some(Request { context: [sum, DEXT], data: DEXT | DATA | TXSM, headers: None }),
            Gso::Tcp4 => segments(frame, start, field, sum, offload.gso_size),
            _ => None,
        }
    }
}

fn segments(frame: &[u8], tcp: usize, field: usize, sum: u64, segment: u16) -> Option<Request> {
    let ip = match *frame.get(ETHERNET - 2..ETHERNET)?.first_chunk()? {
        VLAN_TYPE => ETHERNET + TAG,
        _ => ETHERNET,
    };
    let is_ipv4 = frame.get(ip - 2..ip)? == IPV4_TYPE && frame.get(ip + IP_PROTOCOL) == Some(&TCP_PROTOCOL);
    let len = tcp.checked_add(usize::from(frame.get(tcp.checked_add(TCP_HEADER)?)? >> 4) * 4)?;
    if !is_ipv4 || tcp < ip + 20 || len < tcp + 20 || field != tcp + TCP_SUM || segment == 0 {
        return None;
    }
    let mut headers = Headers { bytes: [0; HEADERS], len };
    let bytes = headers.bytes.get_mut(..len)?;
    bytes.copy_from_slice(frame.get(..len)?);
    bytes[ip + IP_LENGTH..][..2].fill(0);
    bytes[ip + IP_SUM..][..2].fill(0);
    // The sum of the pseudo-header without the length.
    let words =
        bytes[ip + IP_ADDRESSES..][..8].chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let total = words.sum::<u32>() + u32::from(TCP_PROTOCOL);
    let folded = (total & 0xffff) + (total >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    bytes[field..][..2].copy_from_slice(&(folded as u16).to_be_bytes());
    let ip_sum = ip as u64 | ((ip + IP_SUM) as u64) << 8 | (tcp as u64 - 1) << 16;
    let sizes = (frame.len() - len) as u64 | (len as u64) << 40 | u64::from(segment) << 48;
    Some(Request {
        context: [ip_sum | sum, sizes | DEXT | TSE | TCP | IPV4],
        data: DEXT | DATA | TSE | IXSM | TXSM,
        headers: Some(headers),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A TCP frame of `payload` bytes, with the sum of its pseudo-header, and its offload request.
    pub fn tcp_frame(payload: usize) -> (Vec<u8>, Offload) {
        let mut frame = vec![0; 54 + payload];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 6]);
        frame[24..26].copy_from_slice(&[0xab, 0xcd]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[46] = 0x50;
        let sum = 0x0a00 + 1 + 0x0a00 + 2 + 6 + 20 + payload as u32;
        frame[50..52].copy_from_slice(&(sum as u16).to_be_bytes());
        (0..payload).for_each(|at| frame[54 + at] = at as u8);
        let offload = Offload {
            needs_csum: true,
            gso: Gso::Tcp4,
            gso_size: 1460,
            csum_start: 34,
            csum_offset: 16,
            ..Offload::default()
        };
        (frame, offload)
    }

    #[test]
    fn a_checksum_goes_where_the_offload_says() {
        let (frame, offload) = tcp_frame(10);
        let request = Request::of(&frame, &Offload { gso: Gso::None, ..offload }).unwrap();
        assert_eq!(request.context, [34 << 32 | 50 << 40, 1 << 29]);
        assert_eq!((request.data, request.headers), (1 << 29 | 1 << 20 | 1 << 41, None));
    }

    #[test]
    fn a_frame_to_be_segmented_has_headers_without_lengths() {
        let (frame, offload) = tcp_frame(30_000);
        let request = Request::of(&frame, &offload).unwrap();
        // IPv4 header from 14, its sum at 24, to 33; TCP header from 34, its sum at 50, to the end.
        assert_eq!(request.context[0], 14 | 24 << 8 | 33 << 16 | 34 << 32 | 50 << 40);
        // 30,000 bytes after 54 of headers in segments of 1,460; TCP, IPv4, TSE, DEXT.
        assert_eq!(request.context[1], 30_000 | 0x27 << 24 | 54 << 40 | 1460 << 48);
        assert_eq!(request.data, 1 << 20 | 1 << 26 | 1 << 29 | 1 << 40 | 1 << 41);
        let headers = request.headers.unwrap();
        let mut wanted = frame[..54].to_vec();
        [16, 17, 24, 25].into_iter().for_each(|at| wanted[at] = 0);
        wanted[50..52].copy_from_slice(&(0x0a00_u16 + 1 + 0x0a00 + 2 + 6).to_be_bytes());
        assert_eq!(headers.bytes(), wanted);
    }

    #[test]
    fn a_frame_that_is_not_as_its_offload_says_is_refused() {
        let (frame, good) = tcp_frame(3000);
        let refused = |offload: Offload| Request::of(&frame, &offload).is_none();
        assert!(!refused(good));
        assert!(refused(Offload { needs_csum: false, ..good }));
        assert!(refused(Offload { csum_start: 3050, ..good }) && refused(Offload { csum_start: u16::MAX, ..good }));
        assert!(refused(Offload { csum_start: 300, gso: Gso::None, ..good }), "beyond what a context can hold");
        assert!(
            refused(Offload { csum_start: 30, csum_offset: 20, ..good }) && refused(Offload { csum_offset: 6, ..good })
        );
        assert!(refused(Offload { gso_size: 0, ..good }));
        for gso in [Gso::Tcp6, Gso::UdpL4, Gso::Udp4Frag] {
            assert!(refused(Offload { gso, ..good }));
        }
        for len in 0..54 {
            assert!(Request::of(&frame[..len], &good).is_none(), "{len}");
        }
        for (at, byte) in [(13, 6), (23, 17), (46, 0x40), (46, 0xf0)] {
            let mut other = frame.clone();
            other[at] = byte;
            // A TCP header of 60 bytes is no mistake.
            assert_eq!(Request::of(&other, &good).is_some(), byte == 0xf0, "{at}");
        }
    }
}
