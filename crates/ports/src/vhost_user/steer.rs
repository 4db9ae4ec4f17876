//! Which of several receive queues a frame goes to: one flow, one queue.

use ringway_memory::HEAD_BYTES;

/// A number that is the same for all frames of a flow: of the addresses and ports where there are any, else of the
/// Ethernet addresses. Only for spreading: clients can choose it.
#[inline]
pub(super) fn flow_hash(head: &[u8; HEAD_BYTES]) -> u32 {
    let tag = if head[12..14] == [0x81, 0x00] { 4 } else { 0 };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let ip = 14 + tag;
    let mixed = match &head[12 + tag..14 + tag] {
        [0x08, 0x00] => {
            let ports = u64::from_le_bytes(head[ip + 20..ip + 28].try_into().unwrap_or_default()) & 0xffff_ffff;
            // Ports are there only in unfragmented TCP and UDP without IP options.
            let plain =
                head[ip] == 0x45 && head[ip + 6] & 0x3f == 0 && head[ip + 7] == 0 && matches!(head[ip + 9], 6 | 17);
            mix(word(ip + 12), if plain { ports } else { 0 })
        }
        [0x86, 0xdd] => {
            let ports = word(ip + 40) & 0xffff_ffff;
            let ports = if matches!(head[ip + 6], 6 | 17) { ports } else { 0 };
            mix(mix(word(ip + 8), word(ip + 16)), mix(word(ip + 24), word(ip + 32)) ^ ports)
        }
        _ => mix(word(0), word(4)),
    };
    (mixed >> 32) as u32
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xc2b2_ae3d_27d4_eb4f);
    (product >> 64) as u64 ^ product as u64
}
