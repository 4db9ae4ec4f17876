//! Flooded frames that only some ports hear: a forwarding program named the ports.

use crate::frame::MAX_PORTS;

/// Bits of a word.
const WORD: usize = 64;

/// A set of ports, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSet(Box<[u64]>);

impl Default for PortSet {
    fn default() -> Self {
        Self(vec![0; MAX_PORTS / WORD].into())
    }
}

impl PortSet {
    /// Adds the port with this index.
    pub fn insert(&mut self, port: u16) {
        if let Some(word) = self.0.get_mut(usize::from(port) / WORD) {
            *word |= 1 << (usize::from(port) % WORD);
        }
    }

    /// Removes all ports.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Returns true if the port with this index is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.0.get(usize::from(port) / WORD).is_some_and(|word| word & 1 << (usize::from(port) % WORD) != 0)
    }
}

/// Which ports hear each flooded frame of a batch. Kept between passes, so that its memory is allocated once.
#[derive(Debug)]
pub(crate) struct Audience {
    /// The set of each frame: 0 for every port, otherwise a place in `sets` plus one.
    set_of: Box<[u8]>,
    /// The sets of this batch. The first `used` are valid.
    sets: Vec<PortSet>,
    used: usize,
    /// The place in `sets` plus one of each set that a program numbers; 0 for sets that no frame has.
    places: [u8; Audience::SETS],
}

impl Audience {
    /// Sets that a program has.
    pub(crate) const SETS: usize = 64;

    pub(super) fn new(limit: usize) -> Audience {
        Audience { set_of: vec![0; limit].into(), sets: Vec::new(), used: 0, places: [0; Self::SETS] }
    }

    /// Every port hears each frame.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.used > 0 {
            self.set_of.fill(0);
            (self.used, self.places) = (0, [0; Self::SETS]);
        }
    }

    /// Frame `index` is for this set of ports, whose number is `number`.
    pub(super) fn narrow(&mut self, index: usize, number: usize, set: &PortSet) {
        let (Some(place), Some(set_of)) = (self.places.get_mut(number), self.set_of.get_mut(index)) else { return };
        if *place == 0 {
            match self.sets.get_mut(self.used) {
                Some(copy) => copy.0.copy_from_slice(&set.0),
                None => self.sets.push(set.clone()),
            }
            self.used += 1;
            *place = self.used as u8;
        }
        *set_of = *place;
    }

    /// Returns true if some frame is for some ports only.
    #[inline]
    pub(crate) fn is_narrow(&self) -> bool {
        self.used > 0
    }

    /// Returns true if the port hears frame `index`, if that is flooded.
    #[inline]
    pub(crate) fn hears(&self, index: usize, port: u16) -> bool {
        match self.set_of.get(index) {
            Some(&place) if place > 0 => self.sets.get(usize::from(place) - 1).is_some_and(|set| set.contains(port)),
            _ => true,
        }
    }

    /// The place of the set of frame `index`. 0: every port.
    pub(crate) fn place(&self, index: usize) -> usize {
        self.set_of.get(index).copied().unwrap_or(0).into()
    }
}
