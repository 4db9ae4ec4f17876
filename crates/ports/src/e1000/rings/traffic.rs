//! What the statistics registers need to know of frames.

/// Frames of one direction. Bytes are without frame check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames to everybody.
    pub broadcast: u64,
    /// Frames to a group.
    pub multicast: u64,
    /// Frames by their length with frame check sequence: up to 64 bytes, up to 127, 255, 511, 1023, and longer.
    pub sizes: [u64; 6],
}

impl Traffic {
    /// Counts `frames` of `len` bytes that begin with `head`.
    #[inline(always)]
    pub(super) fn add(&mut self, head: &[u8], len: usize, frames: u64) {
        self.frames += frames;
        self.bytes += frames * len as u64;
        if head.first().is_some_and(|first| first & 1 != 0) {
            self.add_group(head, frames);
        }
        // Lengths from 64 on by their highest bit.
        let place = ((len + 4) >> 6).checked_ilog2().map_or(0, |bit| bit as usize + usize::from(len > 60));
        self.sizes[place.min(5)] += frames;
    }

    #[cold]
    fn add_group(&mut self, head: &[u8], frames: u64) {
        match head.starts_with(&[0xff; 6]) {
            true => self.broadcast += frames,
            false => self.multicast += frames,
        }
    }

    /// Adds another's frames.
    pub fn merge(&mut self, other: &Traffic) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.broadcast += other.broadcast;
        self.multicast += other.multicast;
        for (size, more) in self.sizes.iter_mut().zip(other.sizes) {
            *size += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_counted_in_the_register_that_the_manual_gives_it() {
        // PTC64, PTC127, PTC255, PTC511, PTC1023 and PTC1522 count lengths with frame check sequence.
        for (with_fcs, place) in
            [(18, 0), (64, 0), (65, 1), (127, 1), (128, 2), (255, 2), (256, 3), (511, 3), (512, 4), (1023, 4)]
                .into_iter()
                .chain([(1024, 5), (1522, 5), (9018, 5), (65_000, 5)])
        {
            let mut traffic = Traffic::default();
            traffic.add(&[2; 14], with_fcs - 4, 1);
            assert_eq!(traffic.sizes.iter().position(|&count| count == 1), Some(place), "{with_fcs} bytes");
        }
        let mut traffic = Traffic::default();
        traffic.add(&[0xff; 14], 60, 2);
        traffic.add(&[1; 14], 60, 1);
        assert_eq!((traffic.frames, traffic.bytes, traffic.broadcast, traffic.multicast), (3, 180, 2, 1));
    }
}
