//! Things of the library that C names by a number.

use std::sync::atomic::{AtomicU32, Ordering};

/// The first generation of the next table.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A table of things. The number of one that was retired is not valid again before its place was used 2^32 times.
pub struct Handles<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    /// Of a new place. That of another table is far from it, so that the one does not take the other's numbers.
    first: u32,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        // The golden ratio spreads them evenly, however many there are.
        Self { places: Vec::new(), free: Vec::new(), first: NEXT.fetch_add(0x9e37_79b9, Ordering::Relaxed).max(1) }
    }
}

impl<T> Handles<T> {
    /// Adds a thing. Returns its number, which is not 0.
    #[inline(always)]
    pub fn add(&mut self, thing: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((self.first, None));
            self.places.len() as u32 - 1
        });
        let Some((generation, place)) = self.places.get_mut(index as usize) else { return 0 };
        *place = Some(thing);
        u64::from(*generation) << 32 | u64::from(index)
    }

    /// Lifts the thing with this number out of its place, to be put back or retired.
    #[inline(always)]
    pub fn lift(&mut self, number: u64) -> Option<T> {
        self.place(number)?.take()
    }

    /// Puts a thing back that was lifted.
    #[cold]
    pub fn put_back(&mut self, number: u64, thing: T) {
        if let Some(place) = self.place(number) {
            *place = Some(thing);
        }
    }

    /// Makes the number of a thing that was lifted invalid.
    #[inline(always)]
    pub fn retire(&mut self, number: u64) {
        let index = number as u32;
        if let Some((generation, _)) = self.places.get_mut(index as usize) {
            *generation = generation.wrapping_add(1).max(1);
            self.free.push(index);
        }
    }

    #[inline]
    fn place(&mut self, number: u64) -> Option<&mut Option<T>> {
        let (generation, place) = self.places.get_mut(number as u32 as usize)?;
        (u64::from(*generation) == number >> 32).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_what_was_retired_names_nothing() {
        let mut handles = Handles::default();
        let (a, b) = (handles.add('a'), handles.add('b'));
        assert!(a != 0 && b != 0 && a != b);
        assert_eq!((handles.lift(a), handles.lift(a)), (Some('a'), None));
        handles.put_back(a, 'z');
        assert_eq!(handles.lift(a), Some('z'));
        handles.retire(a);
        let c = handles.add('c');
        assert_eq!((handles.lift(a), handles.lift(b), handles.lift(c)), (None, Some('b'), Some('c')));
        assert_eq!((handles.lift(0), handles.lift(u64::MAX)), (None, None));
    }

    #[test]
    fn a_table_does_not_take_the_number_of_another_ones_thing() {
        let (mut one, mut other) = (Handles::default(), Handles::default());
        let (a, b) = (one.add('a'), other.add('b'));
        assert_eq!((one.lift(b), other.lift(a)), (None, None));
        assert_eq!((one.lift(a), other.lift(b)), (Some('a'), Some('b')));
    }
}
