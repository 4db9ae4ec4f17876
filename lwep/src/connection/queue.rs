//! A queue whose places are a power of two: shorter ways than those of `VecDeque`.

/// A queue.
#[derive(Debug)]
pub struct Queue<T> {
    places: Box<[T]>,
    // Few bytes: what connections look at for every message lies together.
    head: u32,
    len: u32,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { places: Box::default(), head: 0, len: 0 }
    }
}

impl<T: Copy> Queue<T> {
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, index: usize) -> usize {
        (self.head as usize).wrapping_add(index) & self.places.len().wrapping_sub(1)
    }

    #[inline]
    pub fn push_back(&mut self, item: T) {
        if self.len() == self.places.len() {
            self.grow(item);
        }
        let place = self.place(self.len());
        if let Some(to) = self.places.get_mut(place) {
            *to = item;
            self.len += 1;
        }
    }

    /// Adds `count` items, made by their positions among them.
    pub fn extend(&mut self, count: usize, item: impl Fn(usize) -> T) {
        while self.len() + count > self.places.len() {
            self.grow(item(0));
        }
        let first = self.place(self.len());
        let (second, places) = self.places.split_at_mut(first);
        places.iter_mut().chain(second).take(count).enumerate().for_each(|(index, to)| *to = item(index));
        self.len += count as u32;
    }

    /// Doubles the places; `item` fills the new ones.
    #[cold]
    fn grow(&mut self, item: T) {
        let mut places = Vec::with_capacity((2 * self.places.len()).max(4));
        let (end, start) = self.places.split_at(self.head as usize);
        places.extend_from_slice(start);
        places.extend_from_slice(end);
        places.resize(places.capacity(), item);
        (self.places, self.head) = (places.into_boxed_slice(), 0);
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let item = *self.get(0)?;
        self.head = self.place(1) as u32;
        self.len -= 1;
        Some(item)
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index < self.len() { self.places.get(self.place(index)) } else { None }
    }

    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let place = self.place(index);
        if index < self.len() { self.places.get_mut(place) } else { None }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_queue_is_like_that_of_the_standard_library(steps: Vec<Option<(u32, usize)>>) {
            let (mut queue, mut other) = (Queue::default(), VecDeque::new());
            for step in steps {
                match step {
                    Some((number, count)) if count % 4 == 0 => {
                        let more = |index: usize| number.wrapping_add(index as u32);
                        queue.extend(count % 100, more);
                        other.extend((0..count % 100).map(more));
                    }
                    Some((number, _)) => {
                        queue.push_back(number);
                        other.push_back(number);
                    }
                    None => prop_assert_eq!(queue.pop_front(), other.pop_front()),
                }
                prop_assert_eq!(queue.len(), other.len());
                prop_assert!(queue.iter().eq(&other));
                prop_assert_eq!(queue.get(other.len()), None);
            }
        }
    }
}
