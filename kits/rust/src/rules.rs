//! Rules about the bits of a key. The first rule that fits a key counts.

use crate::memory::filled;
use crate::table::Table;

/// Rules that look for certain bits of a key of five words ([`Flow::key`](crate::Flow::key)). Of all rules that fit a key, the first that was added counts.
///
/// A look costs one access to a table for each *shape*: the rules that look at the same bits are one shape, however many they are. For example, all rules for
/// a protocol, a port and the first 24 bits of the source address.
pub struct Rules<V: 'static> {
    shapes: &'static mut [Shape],
    used: usize,
    /// By the bits of a shape, and its number: the number of the first rule that looks for them, and its value.
    table: Table<6, (u32, V)>,
    added: u32,
}

#[derive(Clone, Copy)]
struct Shape {
    bits: [u64; 5],
    /// Number of its first rule.
    first: u32,
}

#[inline]
fn key([a, b, c, d, e]: &[u64; 5], bits: &[u64; 5], shape: usize) -> [u64; 6] {
    [a & bits[0], b & bits[1], c & bits[2], d & bits[3], e & bits[4], shape as u64]
}

impl<V: Copy> Rules<V> {
    /// No rules yet, and room for so many of so many shapes. `None` if there is no memory: a rule takes 64 bytes and its value, two to four times.
    #[must_use]
    pub fn new(rules: usize, shapes: usize) -> Option<Rules<V>> {
        Rules::with(Table::new(rules)?, shapes)
    }

    fn with(table: Table<6, (u32, V)>, shapes: usize) -> Option<Rules<V>> {
        Some(Rules { shapes: filled(shapes, Shape { bits: [0; 5], first: 0 })?, used: 0, table, added: 0 })
    }

    /// Adds a rule that fits keys which have the bits of `wanted` where `bits` has ones. Returns false if there is no room for it.
    #[must_use]
    pub fn add(&mut self, wanted: &[u64; 5], bits: &[u64; 5], value: V) -> bool {
        let known = self.shapes[..self.used].iter().position(|shape| shape.bits == *bits);
        let shape = known.unwrap_or(self.used);
        if known.is_none() {
            match self.shapes.get_mut(shape) {
                Some(free) => *free = Shape { bits: *bits, first: self.added },
                None => return false,
            }
            self.used += 1;
        }
        let key = key(wanted, bits, shape);
        self.added += 1;
        // An earlier rule that looks for the same counts.
        self.table.get(&key).is_some() || self.table.insert(key, (self.added - 1, value))
    }

    /// The value of the first rule that fits a key.
    #[inline]
    #[must_use]
    pub fn first(&self, of: &[u64; 5]) -> Option<V> {
        let mut best: Option<(u32, V)> = None;
        for (number, shape) in self.shapes[..self.used].iter().enumerate() {
            let earliest = best.map_or(u32::MAX, |(rule, _)| rule);
            // The shapes are in the order of their first rules.
            if shape.first > earliest {
                break;
            }
            best = self.table.get(&key(of, &shape.bits, number)).filter(|(rule, _)| *rule < earliest).or(best);
        }
        best.map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::hash;
    use std::vec::Vec;

    #[test]
    fn the_first_rule_that_fits_counts_as_in_a_list() {
        for seed in 0..200 {
            let mut random = seed;
            let mut next = |below: u64| {
                random = hash(&[random, 1], seed);
                random % below
            };
            let mut rules = Rules::with(Table::seeded(60, seed).unwrap(), 64).unwrap();
            let mut list = Vec::new();
            for value in 0..60 {
                let bits = [next(4), 0, next(4), 0, next(2)];
                let wanted = [next(4), 0, next(4), 0, next(2)];
                assert!(rules.add(&wanted, &bits, value));
                list.push((wanted, bits, value));
            }
            for _ in 0..200 {
                let key = [next(4), next(9), next(4), 5, next(2)];
                let fits = |(wanted, bits, _): &&([u64; 5], [u64; 5], u64)| {
                    (0..5).all(|at| key[at] & bits[at] == wanted[at] & bits[at])
                };
                assert_eq!(rules.first(&key), list.iter().find(fits).map(|rule| rule.2), "seed {seed}");
            }
        }
    }

    #[test]
    fn rules_beyond_the_room_are_refused() {
        let mut rules = Rules::with(Table::seeded(2, 1).unwrap(), 1).unwrap();
        assert!(rules.add(&[1, 0, 0, 0, 0], &[1, 0, 0, 0, 0], 1));
        assert!(!rules.add(&[1, 0, 0, 0, 0], &[3, 0, 0, 0, 0], 2), "a second shape");
        assert!(rules.add(&[0, 0, 0, 0, 0], &[1, 0, 0, 0, 0], 3));
        assert!(rules.add(&[1, 0, 0, 0, 0], &[1, 0, 0, 0, 0], 4), "the same again takes no room");
        assert_eq!((rules.first(&[1; 5]), rules.first(&[0; 5])), (Some(1), Some(3)));
    }
}
