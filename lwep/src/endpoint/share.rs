//! How much of what all stations want one of them may have: buffers, connections, answers to what comes late.

/// A station has at most so many times what is left, if all is left; less and less as less is left.
const TIMES: u128 = 8;

/// Returns true if a station that has `held` may have `count` more, where `left` of `all` are left. It may if it then has no more than
/// eight times what is left, times the part that is left. So one station alone gets seven tenths of all; each of the next ones gets less, but
/// something: it takes 28 stations that hoard all they may to use up 1,024. The last one is for a station that
/// has none. Nothing is taken back for this: what a station has got stays.
#[inline]
pub const fn may_take(held: usize, left: usize, all: usize, count: usize) -> bool {
    if count > left {
        return false;
    }
    let rest = (left - count) as u128;
    held == 0 && count == 1 || (held + count) as u128 * all as u128 <= TIMES * rest * rest
}

/// Returns the most that a station can ever have.
pub fn most(all: usize) -> usize {
    // It may have less if it may have more.
    let (mut most, mut beyond) = (0, all + 1);
    while most + 1 < beyond {
        let middle = most.midpoint(beyond);
        (most, beyond) = if may_take(0, all, all, middle) { (middle, beyond) } else { (most, middle) };
    }
    most
}

/// Returns how many there have to be for one station alone to have `most`.
pub fn all_for(most: usize) -> usize {
    let (mut fewer, mut enough) = (most.saturating_sub(1), 2 * most);
    while fewer + 1 < enough {
        let middle = fewer.midpoint(enough);
        (fewer, enough) = if self::most(middle) < most { (middle, enough) } else { (fewer, middle) };
    }
    enough
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_that_take_all_they_may_leave_something_for_the_next_ones() {
        for (all, stations) in [(3, 2), (36, 7), (64, 8), (1_024, 28), (4_096, 53), (1 << 20, 798)] {
            let (mut left, mut last) = (all, all);
            for number in 0..stations {
                let mut held = 0;
                while may_take(held, left, all, 1) {
                    (held, left) = (held + 1, left - 1);
                }
                assert!(held > 0 && held <= last, "{number} of {stations} at {all}: {held}");
                assert!(number > 0 || held > all / 2 && held == most(all), "one alone has {held} of {all}");
                last = held;
            }
        }
    }

    #[test]
    fn one_station_alone_has_all_that_are_promised_to_one() {
        for promised in (1..100).chain([1_024, 4_096, 1 << 20]) {
            let all = all_for(promised);
            assert!(most(all) >= promised && (all == 1 || most(all - 1) < promised), "{promised} of {all}");
        }
    }

    #[test]
    fn what_may_be_taken_at_once_may_be_taken_one_by_one() {
        for (held, left) in (0..60).flat_map(|held| (0..60).map(move |left| (held, left))) {
            let count = (0..left).take_while(|taken| may_take(held + taken, left - taken, 100, 1)).count();
            assert!((1..=left + 1).all(|some| may_take(held, left, 100, some) == (some <= count)), "{held} {left}");
        }
    }
}
