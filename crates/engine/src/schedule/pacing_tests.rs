use super::*;

/// A driver that moves `rate(wait)` frames per microsecond when its ring is left alone for `wait` microseconds. Runs it for
/// `epochs`. Returns the waits before each visit, in microseconds, and the time at the end.
fn run(pacing: &mut Pacing, start: u64, epochs: u64, rate: impl Fn(u64) -> f64) -> (Vec<u64>, u64) {
    let (mut now, mut until, mut waits) = (start, 0, Vec::new());
    while now < start + epochs * EPOCH.as_nanos() as u64 {
        // The visit itself takes a microsecond.
        let rested = u64::saturating_sub(until, now);
        now += rested + 1000;
        let frames = rate(rested / 1000) * (rested + 1000) as f64 / 1000.0;
        until = pacing.visited(now, frames as u64, false);
        waits.push(rested / 1000);
    }
    (waits, now)
}

/// Returns the median of the second half.
fn usual(waits: &[u64]) -> u64 {
    let mut last: Vec<u64> = waits[waits.len() / 2..].to_vec();
    last.sort_unstable();
    last[last.len() / 2]
}

#[test]
fn a_driver_that_is_faster_when_left_alone_is_left_alone() {
    let mut pacing = Pacing::new();
    let (waits, _) = run(&mut pacing, 1, 400, |wait| 8.0 + (wait.min(32) as f64) / 2.5);
    assert!(usual(&waits) >= 16, "{}", usual(&waits));
}

#[test]
fn a_driver_with_few_frames_in_flight_is_visited_at_once() {
    let mut pacing = Pacing::new();
    let (waits, _) = run(&mut pacing, 1, 400, |wait| 32.0 / (wait as f64 + 2.0));
    assert_eq!(usual(&waits), 0);
    let slowed = waits.iter().filter(|&&wait| wait > 0).count();
    assert!(slowed * 10 < waits.len(), "trials delayed {slowed} of {} visits", waits.len());
}

#[test]
fn a_trial_that_slows_the_driver_down_is_short() {
    let mut pacing = Pacing::new();
    // One frame in flight: with a wait of 2 us the driver sends a third.
    let (waits, now) = run(&mut pacing, 1, 80, |wait| 3.0 / (wait as f64 + 1.0));
    let slowed: u64 = waits.iter().filter(|&&wait| wait > 0).map(|wait| (wait + 1) * 1000).sum();
    assert!(slowed * 100 < now, "{slowed} of {now} ns were spent on trials");
}

#[test]
fn when_the_wait_makes_no_difference_there_is_none() {
    let mut pacing = Pacing::new();
    let (waits, _) = run(&mut pacing, 1, 400, |_| 5.0);
    assert_eq!(usual(&waits), 0);
}

#[test]
fn a_ring_with_many_frames_at_each_visit_is_never_left_alone() {
    let mut pacing = Pacing::new();
    let (waits, _) = run(&mut pacing, 1, 400, |_| 200.0);
    assert!(waits.iter().all(|&wait| wait == 0));
}

#[test]
fn pacing_follows_a_driver_that_changes() {
    let mut pacing = Pacing::new();
    let (_, now) = run(&mut pacing, 1, 400, |wait| 8.0 + (wait.min(32) as f64) / 2.5);
    let (waits, _) = run(&mut pacing, now, 2000, |wait| 32.0 / (wait as f64 + 2.0));
    assert_eq!(usual(&waits), 0);
}

#[test]
fn a_quiet_ring_is_visited_at_once() {
    let mut pacing = Pacing::new();
    let (_, now) = run(&mut pacing, 1, 400, |wait| 8.0 + (wait.min(32) as f64) / 2.5);
    let (waits, _) = run(&mut pacing, now, 400, |_| 0.01);
    assert_eq!(usual(&waits), 0);
}

#[test]
fn a_full_batch_is_followed_by_another_visit_at_once() {
    let mut pacing = Pacing::new();
    let (_, now) = run(&mut pacing, 1, 400, |wait| 8.0 + (wait.min(32) as f64) / 2.5);
    assert!(pacing.visited(now, 64, false) > now);
    assert_eq!(pacing.visited(now + 1000, 256, true), 0);
}
