use proptest::prelude::*;

use super::*;

fn stall(nanoseconds: u64) -> Excess {
    Excess { nanoseconds, stalled: true, within: 0 }
}

fn work(nanoseconds: u64, within: u64) -> Excess {
    Excess { nanoseconds, stalled: false, within }
}

const ALONE: Share = Share { weight: 1, of: 1 };

/// Returns the pause that a verdict brings.
fn pause(verdict: Verdict, now: u64) -> u64 {
    match verdict {
        Verdict::NoAction => 0,
        Verdict::SetAside(until) | Verdict::Quarantine(until) => until - now,
    }
}

#[test]
fn a_visit_may_take_longer_the_more_it_moves() {
    assert_eq!(allowance(0, 0), LEAST_ALLOWANCE);
    assert_eq!(allowance(256, 256 * 1514) - LEAST_ALLOWANCE, 256 * MICROSECOND + 2 * 256 * 1514);
    assert!(allowance(u64::MAX, 0) > SECOND && allowance(1, u64::MAX / 4) > SECOND);
}

#[test]
fn a_port_sits_out_until_the_others_had_their_shares() {
    // The port's weight and all weights; the pause as a multiple of the excess.
    let table = [((1, 1), 0), ((1, 2), 1), ((1, 10), 9), ((3, 6), 1), ((3, 12), 3), ((0, 5), 5)];
    for ((weight, of), times) in table {
        let verdict = Budget::default().charge(SECOND, stall(MILLISECOND), Share { weight, of });
        assert_eq!(verdict, Verdict::SetAside(SECOND + times * MILLISECOND), "{weight} of {of}");
    }
}

#[test]
fn a_port_that_goes_on_is_slow_and_its_pauses_grow() {
    let (mut budget, mut now) = (Budget::default(), SECOND);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let verdict = budget.charge(now, stall(MILLISECOND), ALONE);
        pauses.push(pause(verdict, now) / MILLISECOND);
        now = now.max(budget.until) + 1;
    }
    assert_eq!(pauses, [0, 0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
    let read = budget.read(now);
    assert!(read.slow && !read.quarantined);
    assert_eq!((read.times, read.charged_visits, read.longest_ns), (1, 12, MILLISECOND));
    assert_eq!(read.charged_ns, 12 * MILLISECOND);
}

#[test]
fn charges_are_forgotten_one_by_one() {
    let (mut budget, mut now) = (Budget::default(), SECOND);
    for _ in 0..6 {
        budget.charge(now, stall(MILLISECOND), ALONE);
        now = budget.until.max(now);
    }
    assert!(budget.read(now).slow);
    // In three seconds three of six charges expire. The next is the fourth.
    now += 3 * CHARGE_EXPIRY;
    assert!(budget.read(now).slow);
    assert_eq!(pause(budget.clone().charge(now, stall(MILLISECOND), ALONE), now), 2 * FIRST_PAUSE);
    now += 3 * CHARGE_EXPIRY;
    assert!(!budget.read(now).slow);
    assert_eq!(budget.charge(now, stall(MILLISECOND), ALONE), Verdict::SetAside(now));
    assert_eq!(budget.read(now).times, 1);
}

#[test]
fn a_long_stall_brings_quarantine_at_once_and_only_time_without_an_excess_ends_it() {
    let (mut budget, now) = (Budget::default(), SECOND);
    let Verdict::Quarantine(until) = budget.charge(now, stall(SECOND), Share { weight: 1, of: 2 }) else {
        panic!("no quarantine")
    };
    assert_eq!(until, 2 * SECOND);
    assert_eq!(budget.quarantined_until(), Some(until + QUARANTINE));
    // The port stalls in quarantine, too.
    let again = until + QUARANTINE - 1;
    assert!(matches!(budget.charge(again, stall(SECOND), ALONE), Verdict::SetAside(_)));
    assert_eq!(budget.quarantined_until(), Some(again.max(budget.until) + QUARANTINE));
    let now = budget.quarantined_until().expect("in quarantine");
    let read = budget.read(now);
    assert!(!read.slow && !read.quarantined && budget.quarantined_until().is_none());
    // Each further quarantine is longer, up to a bound. None counts after an hour without one.
    let mut terms = Vec::new();
    let mut now = now;
    for _ in 0..8 {
        budget.charge(now, stall(SECOND), ALONE);
        terms.push((budget.quarantined_until().expect("in quarantine") - budget.until) / SECOND);
        now = budget.quarantined_until().expect("in quarantine");
        budget.read(now);
    }
    assert_eq!(terms, [20, 40, 80, 160, 320, 640, 640, 640]);
    now += u64::from(TERMS) * TERM_EXPIRY;
    budget.charge(now, stall(SECOND), ALONE);
    assert_eq!(budget.quarantined_until().map(|at| at - budget.until), Some(QUARANTINE));
}

#[test]
fn long_computations_count_where_they_take_a_good_part_of_the_ports_own_time() {
    let charged = |excess: u64, within: u64| {
        let mut budget = Budget::default();
        (0..100).filter(|_| budget.charge(SECOND, work(excess, within), ALONE) != Verdict::NoAction).count()
    };
    // Between two long visits the port has visits within its allowance: a hypervisor may have taken the processor.
    let within = [1_000, 10, 3, 2].map(|times| charged(MILLISECOND, times * MILLISECOND));
    assert_eq!(within, [0; 4]);
    let beyond = [0, 100_000, 500_000, MILLISECOND].map(|within| charged(MILLISECOND, within));
    assert!(beyond.iter().all(|&charged| charged >= 75), "{beyond:?}");
    // However many visits these are.
    assert!(charged(17 * MILLISECOND, 1_000 * 5 * MICROSECOND) >= 85);
}

#[test]
fn a_processor_that_is_taken_away_seldom_but_for_long_is_charged_to_nobody() {
    let (mut budget, mut now) = (Budget::default(), SECOND);
    for _ in 0..100 {
        now += 10 * SECOND;
        assert_eq!(budget.charge(now, work(SECOND, SECOND), ALONE), Verdict::NoAction);
    }
}

#[test]
fn no_port_is_charged_for_a_processor_that_is_taken_away_for_a_good_part_of_the_time() {
    // Each visit to one of four equal ports is too long, by this percentage of the time.
    let charged = |percent: u64| {
        let (mut budget, mut now, mut charged) = (Budget::default(), SECOND, 0);
        for _ in 0..10_000 {
            now += MILLISECOND;
            let excess = work(percent * MILLISECOND / 100, 0);
            charged += u64::from(budget.charge(now, excess, Share { weight: 1, of: 4 }) != Verdict::NoAction);
        }
        charged
    };
    assert_eq!([1, 5, 10, 12].map(charged), [0; 4]);
    assert!([14, 25, 90].map(charged).iter().all(|&charged| charged > 8_000), "{:?}", [14, 25, 90].map(charged));
}

#[test]
fn a_stall_that_is_not_very_long_brings_quarantine_only_if_there_was_one_a_moment_ago() {
    let quarantines = |stalls: &[u64], every: u64| {
        let mut budget = Budget::default();
        let verdicts = stalls.iter().zip(1..).map(|(&ns, n)| budget.charge(n * every, stall(ns), ALONE));
        verdicts.map(|verdict| matches!(verdict, Verdict::Quarantine(_))).collect::<Vec<_>>()
    };
    let long = LONG_STALL;
    assert_eq!(quarantines(&[long, long], SECOND / 2), [false, true]);
    assert_eq!(quarantines(&[long - 1, long, long - 1, long], SECOND / 2), [false, false, false, true]);
    assert_eq!(quarantines(&[long; 4], 2 * SECOND), [false; 4], "each was forgotten");
    assert_eq!(quarantines(&[VERY_LONG_STALL - 1], SECOND), [false]);
    assert_eq!(quarantines(&[VERY_LONG_STALL], SECOND), [true]);
}

#[test]
fn long_computations_never_bring_quarantine() {
    let (mut budget, mut now) = (Budget::default(), SECOND);
    for _ in 0..100 {
        assert!(!matches!(budget.charge(now, work(SECOND, 0), ALONE), Verdict::Quarantine(_)));
        now = now.max(budget.until);
    }
    assert!(budget.read(now).slow);
}

/// A poller with ports of these weights. Each visit to the first costs `excess` beyond its batches; a batch takes `batch`.
/// Returns the time that the first took, and the time of all.
fn simulate(weights: &[u64], batch: u64, excess: u64, rounds: usize) -> (u64, u64) {
    let (mut budget, start) = (Budget::default(), SECOND);
    let (mut now, mut taken) = (start, 0);
    let of = weights.iter().sum();
    for _ in 0..rounds {
        for (port, &weight) in weights.iter().enumerate() {
            if port > 0 {
                now += weight * batch;
            } else if now >= budget.until {
                now += weight * batch + excess;
                taken += weight * batch + excess;
                budget.charge(now, stall(excess), Share { weight, of });
            }
        }
    }
    (taken, now - start)
}

proptest! {
    #[test]
    fn whatever_one_port_does_the_others_have_their_shares(
        weights in proptest::collection::vec(1u64..8, 2..12),
        batch in 1_000u64..100_000,
        excess in 1_000u64..2_000_000_000,
    ) {
        let (taken, of) = simulate(&weights, batch, excess, 3_000);
        let sum: u64 = weights.iter().sum();
        let share = of * weights[0] / sum;
        // The port may be ahead by its last visit, and by the part of a debt that the longest pause does not pay.
        let ahead = weights[0] * batch + excess;
        let unpaid = (u128::from(excess) * u128::from(sum)).saturating_sub(u128::from(LONGEST_DEBT)) > 0;
        prop_assert!(unpaid || taken <= share + ahead, "{taken} of {of}, its share is {share}");
    }

    #[test]
    fn pauses_are_bounded_and_end(
        charges in proptest::collection::vec((0u64..20_000_000_000, 0u64..100_000_000_000, any::<bool>(), 1u64..100), 1..60),
    ) {
        let (mut budget, mut now) = (Budget::default(), SECOND);
        for (passed, nanoseconds, stalled, of) in charges {
            now = now.max(budget.until) + passed;
            let verdict = budget.charge(now, Excess { nanoseconds, stalled, within: 0 }, Share { weight: 1, of });
            prop_assert!(pause(verdict, now) <= LONGEST_DEBT);
            prop_assert!(budget.quarantined_until().is_none_or(|at| at <= now + LONGEST_DEBT + (QUARANTINE << TERMS)));
        }
        now = budget.quarantined_until().unwrap_or(now).max(now) + 60 * SECOND;
        budget.read(now);
        prop_assert!(!budget.read(now).slow);
    }
}
