//! Frames of the local kernel that it has not finished: their checksum is incomplete, or they have to be cut.
//!
//! For a virtual device, such as veth, the kernel leaves a frame's checksum incomplete: the field holds the sum of the pseudo-header.
//! The kernel does not tell an XDP socket. The field itself shows it: one of 65,536 complete frames has the same value by chance, and
//! completing such a frame gives the same bytes again, if the frame is not damaged.

use ringway_switch::{DropReason, Gso, Headers, Offload};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Returns what is left to do if the frame that begins with `head`, or the one in its tunnel, has an incomplete checksum.
pub(crate) fn partial_checksum(head: &[u8]) -> Option<Offload> {
    let headers = Headers::read(head)?;
    partial_at(head, &headers).or_else(|| partial_at(head, &headers.inner(head)?))
}

fn partial_at(head: &[u8], headers: &Headers) -> Option<Offload> {
    if !matches!(headers.protocol, TCP | UDP) {
        return None;
    }
    let offset = headers.checksum_offset(head)?;
    let word = |at: usize| Some(u64::from(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?])));
    let field = word(headers.transport + offset)?;
    let (addresses, end) = if headers.v6 {
        (headers.ip + 8..headers.ip + 40, headers.ip as u64 + 40 + word(headers.ip + 4)?)
    } else {
        (headers.ip + 12..headers.ip + 20, headers.ip as u64 + word(headers.ip + 2)?)
    };
    let len = end.checked_sub(headers.transport as u64)?;
    let mut sum = u64::from(headers.protocol) + len;
    for at in addresses.step_by(2) {
        sum += word(at)?;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (sum == field).then(|| Offload {
        needs_csum: true,
        csum_start: headers.transport as u16,
        csum_offset: offset as u16,
        ..Offload::default()
    })
}

/// Bytes of a TCP header up to its length, which is there in words of 32 bits.
const TCP_LENGTH_AT: usize = 12;

/// Returns what is left to do for a frame of the local kernel of `len` bytes that begins with `head`.
///
/// The kernel joins packets to frames that its virtual devices need not cut, and does not tell an XDP socket in its stack. A packet
/// beyond the device's MTU shows it. TCP may be cut anywhere; what the packets of other protocols were is lost.
///
/// # Errors
/// The frame has to be cut, and it is not known how.
pub(crate) fn left_to_do(head: &[u8], len: usize, mtu: usize) -> Result<Option<Offload>, DropReason> {
    let partial = partial_checksum(head);
    let Some(headers) = Headers::read(head).filter(|headers| len > headers.ip + mtu) else { return Ok(partial) };
    let tcp = head.get(headers.transport + TCP_LENGTH_AT).filter(|_| headers.protocol == TCP);
    let segment = tcp.and_then(|length| {
        let before = headers.transport - headers.ip + 4 * usize::from(length >> 4);
        u16::try_from(mtu.checked_sub(before)?).ok().filter(|&size| size > 0)
    });
    let (Some(checksum), Some(gso_size)) = (partial, segment) else { return Err(DropReason::BadOffload) };
    Ok(Some(Offload { gso: if headers.v6 { Gso::Tcp6 } else { Gso::Tcp4 }, gso_size, ..checksum }))
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};

    use super::*;

    /// Frames with complete checksums.
    fn frames() -> Vec<Vec<u8>> {
        let ethernet = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (c, d) = ([0xfd; 16], [0xfe; 16]);
        let tagged = || ethernet().single_vlan(5.try_into().expect("a VLAN"));
        let mut frames = vec![Vec::new(); 5];
        let payload = *b"the payload";
        ethernet().ipv4(a, b, 64).tcp(1, 2, 3, 4).write(&mut frames[0], &payload).expect("a frame");
        ethernet().ipv4(a, b, 64).udp(1, 2).write(&mut frames[1], &payload).expect("a frame");
        ethernet().ipv6(c, d, 64).tcp(1, 2, 3, 4).write(&mut frames[2], &payload).expect("a frame");
        ethernet().ipv6(c, d, 64).udp(1, 2).write(&mut frames[3], &payload).expect("a frame");
        tagged().ipv4(a, b, 64).udp(1, 2).write(&mut frames[4], &payload).expect("a frame");
        frames
    }

    /// The kernel's way to leave a checksum: the sum of the pseudo-header, not inverted.
    fn leave(frame: &mut [u8]) -> (usize, usize) {
        let headers = Headers::read(frame).expect("headers");
        let at = headers.transport + headers.checksum_offset(frame).expect("a field");
        let transport = SlicedPacket::from_ethernet(frame).expect("a frame").transport;
        let (kind, len) = match transport {
            Some(TransportSlice::Tcp(tcp)) => (TCP, tcp.slice().len()),
            Some(TransportSlice::Udp(udp)) => (UDP, udp.slice().len()),
            _ => unreachable!("TCP or UDP"),
        };
        let addresses = if headers.v6 { headers.ip + 8..headers.ip + 40 } else { headers.ip + 12..headers.ip + 20 };
        let words = frame[addresses].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let mut sum = words.sum::<u32>() + u32::from(kind) + len as u32;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
        (headers.transport, at)
    }

    #[test]
    fn a_field_with_the_sum_of_the_pseudo_header_asks_for_the_rest_and_a_complete_one_for_nothing() {
        for mut frame in frames() {
            assert_eq!(partial_checksum(&frame), None);
            let (start, at) = leave(&mut frame);
            let left = partial_checksum(&frame).expect("something is left to do");
            assert!(left.needs_csum);
            assert_eq!((usize::from(left.csum_start), usize::from(left.csum_start + left.csum_offset)), (start, at));
        }
    }

    #[test]
    fn a_frame_that_ends_within_its_headers_asks_for_nothing() {
        for mut frame in frames() {
            let (_, at) = leave(&mut frame);
            (0..at + 2).for_each(|len| assert_eq!(partial_checksum(&frame[..len]), None, "{len} bytes"));
        }
    }

    #[test]
    fn a_packet_beyond_the_mtu_is_cut_if_it_is_tcp_and_refused_if_it_is_not() {
        for (mut frame, size) in frames().into_iter().zip([1460, 0, 1440, 0, 0]) {
            let (_, at) = leave(&mut frame);
            let ip = Headers::read(&frame).expect("headers").ip;
            let whole = left_to_do(&frame, ip + 1500, 1500).expect("it need not be cut").expect("its checksum is left");
            assert_eq!((whole.gso, whole.needs_csum), (Gso::None, true));
            match left_to_do(&frame, ip + 1501, 1500) {
                Ok(cut) => assert_eq!(cut.map(|cut| cut.gso_size), Some(size)),
                Err(reason) => assert_eq!((reason, size), (DropReason::BadOffload, 0)),
            }
            frame[at] ^= 1;
            assert_eq!(left_to_do(&frame, ip + 1501, 1500), Err(DropReason::BadOffload), "a checksum that is complete");
        }
    }
}
