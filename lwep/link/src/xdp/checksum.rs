//! Frames of the local kernel whose checksum it has left to the device: it does not tell an XDP socket.

use ringway_abi::Offload;

/// Where TCP begins behind an IPv4 header without options, and its checksum from there.
const TCP: usize = 34;
const FIELD: usize = 16;

/// Returns what is left to do for a frame of TCP over IPv4 whose checksum is that of the pseudo-header alone. One of 65,536 complete
/// frames has the same value by chance, and completing such a frame gives the same bytes again.
pub(super) fn checksum_left(frame: &[u8]) -> Option<Offload> {
    let head: &[u8; TCP + FIELD + 2] = frame.first_chunk()?;
    if head[12..15] != [8, 0, 0x45] || head[23] != 6 {
        return None;
    }
    let word = |at: usize| u32::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let len = word(16).checked_sub(20)?;
    let sum: u32 = [26, 28, 30, 32].map(word).iter().sum::<u32>() + 6 + len;
    let folded = (sum & 0xffff) + (sum >> 16);
    let field = word(TCP + FIELD);
    (field == (folded & 0xffff) + (folded >> 16)).then(|| Offload {
        needs_csum: true,
        csum_start: TCP as u16,
        csum_offset: FIELD as u16,
        ..Offload::default()
    })
}
