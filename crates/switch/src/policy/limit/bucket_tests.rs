//! Token buckets, with a simulated clock.

use proptest::prelude::*;

use super::Bucket;
use super::units::{BYTE, PARTS};

const SECOND: u64 = 1_000_000_000;
const START: u64 = SECOND;

/// Frames of `len` bytes that pass at `now` before the bucket is empty.
fn drain(bucket: &Bucket, len: u64, now: u64) -> u64 {
    let frames = (bucket.fill(now).max(0) as u64).div_ceil(len * BYTE as u64);
    bucket.take(frames as i64 * len as i64 * BYTE);
    frames
}

fn rates() -> impl Strategy<Value = u64> {
    // Values of all orders of magnitude, and the ends of the range.
    prop_oneof![
        (3u32..12, 1u64..10).prop_map(|(e, m)| (m * 10u64.pow(e)).clamp(8_000, 400_000_000_000)),
        Just(8_000),
        Just(400_000_000_000)
    ]
}

fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![Just(60), Just(1514), Just(65_549), 60u64..65_549]
}

proptest! {
    #[test]
    fn no_interval_sees_more_than_burst_rate_and_one_frame_nor_less_than_the_rate(
        rate in rates(),
        burst_bytes in 1514u64..2_000_000,
        len in lengths(),
        looks in prop::collection::vec(1u64..20_000_000, 1..200),
    ) {
        let bucket = Bucket::new(rate, burst_bytes * 8);
        let mut now = START;
        let mut bits: Vec<(u64, u64)> = vec![(now, drain(&bucket, len, now) * len * 8)];
        let mut idle = false;
        for look in looks {
            now += look;
            idle |= u128::from(look) * u128::from(rate) > u128::from(burst_bytes) * 8 * u128::from(SECOND);
            bits.push((now, drain(&bucket, len, now) * len * 8));
        }
        // Every interval between two calls, including the frames at its beginning.
        for begin in 0..bits.len() {
            let mut passed = 0u128;
            for &(at, there) in &bits[begin..] {
                passed += u128::from(there);
                let earned = u128::from(at - bits[begin].0) * u128::from(rate) / u128::from(SECOND);
                prop_assert!(passed <= earned + u128::from(burst_bytes * 8 + len * 8));
            }
        }
        // There was always demand, and each call came before the bucket was full: no tokens were lost.
        if !idle {
            let passed: u128 = bits.iter().map(|&(_, there)| u128::from(there)).sum();
            let earned = u128::from(now - START) * u128::from(rate) / u128::from(SECOND) + u128::from(burst_bytes) * 8;
            prop_assert!(passed >= earned);
        }
    }

    #[test]
    fn any_second_is_within_half_a_percent_and_a_frame(rate in rates(), len in lengths(), pause in 1u64..1_000_000) {
        let bucket = Bucket::new(rate, 10 * 1514 * 8 + rate / 100);
        let _ = drain(&bucket, len, START);
        let (mut now, mut bits) = (START, 0u128);
        for _ in 0..SECOND / pause {
            now += pause;
            bits += u128::from(drain(&bucket, len, now) * len * 8);
        }
        let earned = u128::from(rate) * u128::from(now - START) / u128::from(SECOND);
        let error = bits.abs_diff(earned);
        prop_assert!(error <= earned / 200 + u128::from(len) * 8, "{bits} bits for {earned}");
    }

    #[test]
    fn several_clocks_that_differ_add_up_to_one_rate(skews in prop::collection::vec(0u64..50_000, 2..5), steps in 10u64..500) {
        let (rate, len) = (1_000_000_000, 1514);
        let bucket = Bucket::new(rate, 1_000_000);
        let _ = drain(&bucket, len, START);
        let mut bits = 0;
        for step in 1..=steps {
            for skew in &skews {
                bits += drain(&bucket, len, START + step * 100_000 - skew) * len * 8;
            }
        }
        let earned = rate * steps / 10_000;
        prop_assert!(bits <= earned + len * 8 && bits + len * 8 + rate / 20_000 >= earned);
    }
}

#[test]
fn a_fraction_that_was_not_spent_is_there_the_next_time() {
    // A frame of 60 bytes every 60 ms, and one on credit.
    let bucket = Bucket::new(8_000, 480);
    assert_eq!(drain(&bucket, 60, START), 1);
    let (mut now, mut frames) = (START, 0);
    while now < START + 600 * SECOND {
        now += 999_983;
        frames += drain(&bucket, 60, now);
    }
    assert_eq!(frames, 10_001);
}

#[test]
fn a_clock_that_jumps_forward_fills_it_once_and_one_set_back_does_not_stop_it() {
    let bucket = Bucket::new(400_000_000_000, 8 * 1514 * 8);
    assert_eq!(drain(&bucket, 1514, START), 8);
    assert_eq!(drain(&bucket, 1514, START + 1_000_000_000 * SECOND), 8);
    // Slightly behind: another poller's clock.
    assert_eq!(drain(&bucket, 1514, START + 1_000_000_000 * SECOND - 5), 0);
    // Far behind: set back. Time counts from there.
    assert_eq!(drain(&bucket, 1514, START), 0);
    assert_eq!(drain(&bucket, 1514, START + 1_000), 8);
}

#[test]
fn another_rate_keeps_what_is_in_it_and_another_burst_is_its_new_bound() {
    let bucket = Bucket::new(1_000, 1_000);
    bucket.take(600 * PARTS);
    let changed = bucket.changed(1_000_000, 10_000);
    assert_eq!(changed.fill(1), 400 * PARTS + 1_000_000);
    let smaller = changed.changed(1_000_000, 100);
    assert_eq!(smaller.fill(2), 100 * PARTS);
}

#[test]
fn the_largest_burst_and_rate_do_not_overflow() {
    let bucket = Bucket::new(400_000_000_000, super::MAX_BURST);
    assert_eq!(bucket.fill(u64::MAX - 1), super::MAX_BURST as i64 * PARTS);
    bucket.take(1024 * 65_549 * BYTE);
    bucket.take(i64::MAX / 2);
    assert!(bucket.fill(u64::MAX) < super::MAX_BURST as i64 * PARTS);
}

#[test]
fn resuming_finds_something_and_is_not_too_early() {
    for rate in [8_000, 1_000_000_000, 400_000_000_000u64] {
        let bucket = Bucket::new(rate, rate / 100 + 100_000);
        let _ = drain(&bucket, 1514, START);
        let at = bucket.resume_at(START, 256 * 1514 * BYTE);
        assert!(at > START && bucket.level_at(at) > 0, "{rate}");
        assert!(bucket.level_at(at) < bucket.burst_parts(), "{rate}");
    }
}
