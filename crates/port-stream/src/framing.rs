//! Where frames begin and end in a stream of bytes: each frame is behind its length (QEMU, net/net.c, `net_fill_rstate`).
//!
//! The beginning of a frame is known only from the frame before it. An impossible length (more than 69,632 bytes, QEMU's own
//! bound) therefore ends the connection as `bad_length`. A frame that is too short or too long for the switch is counted and
//! skipped.

use ringway_memory::View;

/// Bytes of a frame's length field: 32 bits, big-endian.
pub const PREFIX_BYTES: usize = 4;
/// The longest frame in bytes that QEMU sends or accepts (`NET_BUFSIZE`). A greater length is invalid.
pub const MOST_BYTES: usize = (4 << 10) + (64 << 10);

/// The first item in the bytes of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Next<'m> {
    /// A complete frame of any length up to [`MOST_BYTES`], also 0.
    Frame(View<'m>),
    /// An incomplete frame.
    Part,
    /// An invalid length.
    NoLength(u32),
}

/// Decodes the first item. Reads the length field only once.
#[inline]
pub fn next(bytes: View<'_>) -> Next<'_> {
    let mut prefix = [0; PREFIX_BYTES];
    if !bytes.read(&mut prefix) {
        return Next::Part;
    }
    let length = u32::from_be_bytes(prefix);
    if length as usize > MOST_BYTES {
        return Next::NoLength(length);
    }
    bytes.sub(PREFIX_BYTES, length as usize).map_or(Next::Part, Next::Frame)
}

/// Returns the length field of a frame of `len` bytes. The switch has no frames of 4 GiB, so the length fits.
#[inline]
pub fn prefix(len: usize) -> [u8; PREFIX_BYTES] {
    (len as u32).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_its_length_says_and_nonsense_is_not_waited_for() {
        let mut bytes = [prefix(3).as_slice(), b"abc", &prefix(0), &prefix(MOST_BYTES + 1)].concat();
        let whole = View::private(&mut bytes);
        let Next::Frame(frame) = next(whole) else { panic!("a frame") };
        let mut text = [0; 3];
        assert!(frame.len() == 3 && frame.read(&mut text) && text == *b"abc");
        for part in 0..PREFIX_BYTES + 3 {
            assert!(matches!(next(whole.sub(0, part).unwrap()), Next::Part), "{part} bytes");
        }
        assert!(matches!(next(whole.sub(7, 4).unwrap()), Next::Frame(frame) if frame.len() == 0));
        assert!(matches!(next(whole.sub(11, 4).unwrap()), Next::NoLength(69_633)));
    }
}
