//! The station at the other end of the cable: answers ARP requests and pings over IPv4.

const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const ICMP: u8 = 1;
/// The station's MAC address.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Returns the answer to a frame, if it is a request.
pub fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let mut answer = frame.to_vec();
    let asker: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
    answer[..6].copy_from_slice(&asker);
    answer[6..12].copy_from_slice(&MAC);
    match frame.get(12..14)? {
        kind if kind == ARP && frame.len() >= 42 && frame[21] == 1 => {
            answer[21] = 2;
            answer[22..28].copy_from_slice(&MAC);
            answer[28..32].copy_from_slice(&frame[38..42]);
            answer[32..42].copy_from_slice(&frame[22..32]);
        }
        // The sum of the header stays right when two addresses change places, also where it covers a fragment.
        kind if kind == IPV4 && frame.len() >= 38 && frame[23] == ICMP => {
            answer[26..30].copy_from_slice(&frame[30..34]);
            answer[30..34].copy_from_slice(&frame[26..30]);
            let is_first = frame[20] & 0x1f == 0 && frame[21] == 0;
            if is_first && frame[34] != 8 {
                return None;
            }
            if is_first {
                // Type 8 becomes 0: the sum grows by what the word lost, with the carry brought round (RFC 1624).
                let sum = u32::from(u16::from_be_bytes([frame[36], frame[37]])) + 0x0800;
                let sum = (sum & 0xffff) as u16 + (sum >> 16) as u16;
                answer[34] = 0;
                answer[36..38].copy_from_slice(&sum.to_be_bytes());
            }
        }
        _ => return None,
    }
    Some(answer)
}

/// A UDP packet of `len` bytes to the discard port of the station at `to`.
pub fn datagram(to: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &MAC, &IPV4].concat();
    let total = (len.max(42) - 14) as u16;
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1]);
    let sum = frame[14..].chunks(2).fold(0u32, |sum, pair| sum + u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0, 9, 0, 9]);
    frame.extend((total - 20).to_be_bytes());
    frame.resize(len.max(42), 0);
    frame
}
