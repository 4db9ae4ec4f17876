//! Ranges of addresses.

/// A set of disjoint ranges. Most ports have one.
#[derive(Clone, Debug)]
pub(super) struct Ranges<T> {
    first: (T, T),
    /// The others, sorted.
    more: Box<[(T, T)]>,
}

impl<T: Copy + Ord> Ranges<T> {
    /// The union of `ranges`. `nothing` is an empty range, which ends before it begins.
    pub(super) fn new(mut ranges: Vec<(T, T)>, nothing: (T, T)) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        let mut merged = merged.into_iter();
        Self { first: merged.next().unwrap_or(nothing), more: merged.collect() }
    }

    #[inline]
    pub(super) fn contains(&self, value: T) -> bool {
        let (first, last) = self.first;
        first <= value && value <= last || !self.more.is_empty() && self.is_further(value)
    }

    /// The range that contains a value.
    fn range(&self, value: T) -> Option<(T, T)> {
        let (first, last) = self.first;
        let after = self.more.partition_point(|(first, _)| *first <= value);
        let found = if value <= last { Some((first, last)) } else { self.more[..after].last().copied() };
        found.filter(|(first, last)| *first <= value && value <= *last)
    }

    #[inline(never)]
    fn is_further(&self, value: T) -> bool {
        let after = self.more.partition_point(|(first, _)| *first <= value);
        after > 0 && value <= self.more[after - 1].1
    }
}

/// `common` returns a mask of the bits that all addresses in the value's range share. If the value is in no range, or
/// the range is no prefix, the mask has all bits.
macro_rules! common {
    ($number:ty) => {
        impl Ranges<$number> {
            pub(super) fn common(&self, value: $number) -> $number {
                let Some((first, last)) = self.range(value) else { return <$number>::MAX };
                let others = first ^ last;
                if first & others == 0 && others & others.wrapping_add(1) == 0 { !others } else { <$number>::MAX }
            }
        }
    };
}

common!(u32);
common!(u128);
