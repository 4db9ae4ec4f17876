//! A bound on the time that calls beyond harmless ones take of a thread.

/// Calls may take this part of a thread's time beyond what harmless ones take...
const PART: u64 = 20;
/// ...after nanoseconds that are free: a processor that is taken away now and then, for long, holds no call back.
const FREE: u64 = 50_000_000;
/// With the excess of so many clients at the same time, each takes less of the thread's time, so that all together take no more.
const CLIENTS: u64 = 8;
/// The longest hold.
const LONGEST: u64 = 5_000_000_000;

/// The excess of a thread's calls: what they took beyond harmless calls. Each call with an excess is followed by a *hold*, a time in which its client
/// is not called.
#[derive(Debug)]
pub(super) struct Excess {
    /// Nanoseconds of excess that are not paid off yet, at `at`. Grows until holds are long enough.
    owed: u64,
    at: u64,
}

impl Excess {
    pub(super) const NONE: Excess = Excess { owed: 0, at: 0 };

    /// Notes the excess of a call at `now`. Returns the nanoseconds before the next call of that client.
    pub(super) fn note(&mut self, now: u64, nanoseconds: u64) -> u64 {
        let paid = now.saturating_sub(std::mem::replace(&mut self.at, now)) / PART;
        self.owed = self.owed.saturating_sub(paid).saturating_add(nanoseconds).min((1 + CLIENTS) * FREE);
        let beyond = u128::from(self.owed.saturating_sub(FREE));
        // One client whose calls alone have an excess settles where `beyond` is `FREE`.
        let hold = u128::from(nanoseconds) * u128::from(PART) * beyond / u128::from(FREE);
        u64::try_from(hold).unwrap_or(u64::MAX).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: u64 = 1_000;
    const MILLISECOND: u64 = 1_000 * MICROSECOND;
    const SECOND: u64 = 1_000 * MILLISECOND;

    /// The part of a minute that the excess of these clients takes of a thread, in percent. Each is called as soon as it may be.
    fn part(excess: u64, clients: usize) -> u64 {
        let (mut all, mut now, mut taken) = (Excess::NONE, SECOND, 0);
        let mut next = vec![now; clients];
        while now < 61 * SECOND {
            let (client, &at) = next.iter().enumerate().min_by_key(|(_, at)| **at).expect("a client");
            now = now.max(at) + excess;
            taken += excess;
            next[client] = now + all.note(now, excess);
        }
        taken * 100 / (60 * SECOND)
    }

    #[test]
    fn the_excess_of_all_calls_together_is_a_small_part_of_the_time() {
        for clients in [1, 2, 8] {
            let parts = [20 * MICROSECOND, 100 * MICROSECOND, MILLISECOND, 5 * MILLISECOND, 30 * MILLISECOND]
                .map(|excess| part(excess, clients));
            assert!(parts.iter().all(|part| (4..=6).contains(part)), "{clients} clients: {parts:?}");
        }
        assert_eq!(part(80 * MILLISECOND, 1), 5);
        assert!(part(80 * MILLISECOND, 8) <= 14, "the longest hold");
        assert!(part(5 * MILLISECOND, 16) <= 12);
    }

    #[test]
    fn a_processor_that_is_taken_away_now_and_then_holds_no_call_back() {
        // 40 ms each second, at one call or at many.
        for pieces in [1, 40] {
            let mut all = Excess::NONE;
            let holds = (0..60 * pieces).map(|n| all.note(SECOND + n * SECOND / pieces, 40 * MILLISECOND / pieces));
            assert_eq!(holds.max(), Some(0));
        }
    }

    #[test]
    fn a_client_is_held_for_its_own_excess_and_not_for_that_of_others() {
        let mut all = Excess::NONE;
        (0..100).for_each(|_| assert!(all.note(SECOND, 10 * MILLISECOND) <= LONGEST));
        assert_eq!(all.note(SECOND, 0), 0);
        assert!(all.note(SECOND, 10 * MICROSECOND) <= 2 * MILLISECOND);
        assert!(all.note(SECOND, 10 * MILLISECOND) >= 200 * MILLISECOND);
        assert_eq!(all.note(31 * SECOND, MILLISECOND), 0);
    }
}
