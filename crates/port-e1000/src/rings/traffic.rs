//! Counts of frames for the statistics registers.

use ringway_memory::HEAD_BYTES;

/// Counts the frames of one direction. Bytes are without frame check sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames to the broadcast address.
    pub broadcast: u64,
    /// Frames to a multicast address.
    pub multicast: u64,
    /// Frames by their length with frame check sequence: up to 64 bytes, up to 127, 255, 511, 1023, and longer.
    pub sizes: [u64; 6],
}

/// Kind of destination address: unicast (`None`), multicast or broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    None,
    Multicast,
    Broadcast,
}

impl Group {
    /// Returns the kind of destination of a frame that begins with `head`.
    #[inline(always)]
    pub(super) fn of(head: &[u8; HEAD_BYTES]) -> Group {
        match head[0] & 1 {
            0 => Group::None,
            _ if head.starts_with(&[0xff; 6]) => Group::Broadcast,
            _ => Group::Multicast,
        }
    }
}

impl Traffic {
    /// Counts `frames` frames of `len` bytes.
    #[inline(always)]
    pub(super) fn add(&mut self, group: Group, len: usize, frames: u64) {
        self.frames += frames;
        self.bytes += frames * len as u64;
        if group != Group::None {
            self.add_group(group, frames);
        }
        // Lengths from 64 on are classified by their highest bit.
        let place = ((len + 4) >> 6).checked_ilog2().map_or(0, |bit| bit as usize + usize::from(len > 60));
        self.sizes[place.min(5)] += frames;
    }

    #[cold]
    fn add_group(&mut self, group: Group, frames: u64) {
        match group {
            Group::Broadcast => self.broadcast += frames,
            _ => self.multicast += frames,
        }
    }

    /// Adds the counts of `other`.
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
            traffic.add(Group::of(&[2; 128]), with_fcs - 4, 1);
            assert_eq!(traffic.sizes.iter().position(|&count| count == 1), Some(place), "{with_fcs} bytes");
        }
        let mut traffic = Traffic::default();
        traffic.add(Group::of(&[0xff; 128]), 60, 2);
        traffic.add(Group::of(&[1; 128]), 60, 1);
        assert_eq!((traffic.frames, traffic.bytes, traffic.broadcast, traffic.multicast), (3, 180, 2, 1));
    }
}
