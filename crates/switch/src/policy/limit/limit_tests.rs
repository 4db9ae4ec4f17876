//! Limits with several senders, with a simulated clock.

use std::sync::Arc;

use proptest::prelude::*;
use ringway_testing::whole;

use crate::frame::{Account, Cost, Owner};
use crate::policy::congestion::Congestion;
use crate::policy::{Bucket, Cause, Egress, Excess, Limit, Rates, Shared};
use crate::testing::Plan;
use crate::topology::Member;

const SECOND: u64 = 1_000_000_000;
pub(super) const START: u64 = SECOND;

/// A sender: batches of frames with these lengths in turn, at intervals.
#[derive(Clone, Debug)]
struct Sender {
    weight: u32,
    lens: Vec<usize>,
    batch: usize,
    /// Nanoseconds between two batches.
    every: u64,
    given: u64,
    refused: u64,
    next: u64,
}

fn sender(weight: u32, lens: &[usize], batch: usize, every: u64) -> Sender {
    Sender { weight, lens: lens.to_vec(), batch, every, given: 0, refused: 0, next: START }
}

fn bits(rate: u64, burst: u64) -> Rates {
    Rates { bits: Some(Bucket::new(rate, burst)), frames: None }
}

/// Runs the senders for two seconds, and counts what each delivers in the second one.
fn contend(egress: &Egress, senders: &mut [Sender]) {
    contend_for(&[egress], senders);
}

/// Runs the senders as [`contend`] does, with several ports. Senders belong to the ports in rotation.
fn contend_for(egress: &[&Egress], senders: &mut [Sender]) {
    let members: Vec<Member> =
        (0..).zip(senders.iter()).map(|(index, sender)| Member { weight: sender.weight, ..member(index) }).collect();
    let mut counted = false;
    loop {
        let (index, now) =
            (0..).zip(senders.iter()).map(|(i, s)| (i, s.next)).min_by_key(|&(_, next)| next).expect("a sender");
        if now >= START + 2 * SECOND {
            return;
        }
        if now >= START + SECOND && !std::mem::replace(&mut counted, true) {
            senders.iter_mut().for_each(|sender| (sender.given, sender.refused) = (0, 0));
        }
        let (egress, sender) = (egress[index % egress.len()], &mut senders[index]);
        let frames = (0..sender.batch).map(|place| Cost::of_one(sender.lens[place % sender.lens.len()]));
        sender.next += sender.every;
        let mut most = sender.batch;
        if egress.limit().excess == Excess::Wait {
            let (room, mut cost) = (egress.room(members[index].sender(), now), Cost::default());
            let is_covered = |frame: &Cost| {
                let is = room.covers(cost);
                cost += *frame;
                is
            };
            most = frames.clone().take_while(is_covered).count();
            if most < sender.batch {
                sender.next = egress.resume_at(now);
                egress.begin_wait(members[index].sender(), sender.next, room.cause(0), now);
            }
        }
        let frames = frames.take(most);
        let turn = egress.admit(members[index].sender(), frames, None, 0, now);
        sender.given += turn.cost.bytes;
        sender.refused += turn.refused;
    }
}

pub(super) fn member(index: u16) -> Member {
    let lan = Plan::new(1).learning();
    let port = Arc::clone(&lan.switch.member(0).expect("a port").port);
    Member::new(Owner::new(index, 0), port)
}

/// Jain's index of fairness.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

fn per_weight(senders: &[Sender]) -> Vec<f64> {
    senders.iter().map(|sender| sender.given as f64 / f64::from(sender.weight)).collect()
}

#[test]
fn equal_senders_share_equally_whatever_their_frames_and_habits() {
    for rate in [100_000_000, 1_000_000_000, 10_000_000_000u64] {
        let egress = Egress::new(Limit::new(bits(rate, rate / 100)));
        let mut senders = [
            sender(1, &[60], 256, 10_000),
            sender(1, &[1514], 256, 13_000),
            sender(1, &[60, 590, 1514], 17, 11_000),
            sender(1, &[65_549], 32, 70_000),
        ];
        // Small frames that cannot fill their share are not compared.
        let able = if rate > 1_000_000_000 { 1..4 } else { 0..4 };
        contend(&egress, &mut senders[able.clone()]);
        let shares = per_weight(&senders[able]);
        assert!(jain(&shares) >= 0.999, "{rate}: {shares:?}");
        let (sum, rate) = (shares.iter().sum::<f64>() * 8.0, rate as f64);
        assert!((sum - rate).abs() <= rate * 0.005, "{sum} of {rate}");
    }
}

#[test]
fn weights_are_kept_within_a_percent() {
    let egress = Egress::new(Limit::new(bits(1_000_000_000, 10_000_000)));
    let mut senders =
        [sender(1, &[1514], 256, 9_000), sender(2, &[60, 1514], 256, 10_000), sender(7, &[65_549], 32, 30_000)];
    contend(&egress, &mut senders);
    let shares = per_weight(&senders);
    let mean = shares.iter().sum::<f64>() / 3.0;
    assert!(shares.iter().all(|share| (share - mean).abs() <= mean * 0.01), "{shares:?}");
}

#[test]
fn who_wants_less_than_a_share_gets_it_all_and_the_others_share_the_rest() {
    let egress = Egress::new(Limit::new(bits(1_000_000_000, 10_000_000)));
    // Demands of a tenth and a fifth, two senders with unlimited demand, and sixty with hardly any.
    let mut senders = vec![
        sender(1, &[1250], 1, 100_000),
        sender(1, &[1250], 2, 100_000),
        sender(1, &[1514], 256, 10_000),
        sender(1, &[60], 256, 10_000),
    ];
    senders.extend((0..60).map(|_| sender(1, &[100], 1, 10_000_000)));
    contend(&egress, &mut senders);
    let modest: u64 = senders.iter().filter(|s| s.batch < 3).map(|s| s.refused).sum();
    assert_eq!(modest, 0);
    let greedy = per_weight(&senders[2..4]);
    assert!(jain(&greedy) >= 0.999, "{greedy:?}");
    let sum = senders.iter().map(|sender| sender.given).sum::<u64>() as f64 * 8.0;
    assert!((sum - 1e9).abs() <= 5e6, "{sum}");
}

#[test]
fn a_limit_on_frames_is_shared_by_frames() {
    let frames = Rates { bits: None, frames: Some(Bucket::new(1_000_000, 10_000)) };
    let egress = Egress::new(Limit::new(frames));
    let mut senders = [sender(1, &[60], 256, 10_000), sender(3, &[60], 256, 10_000)];
    contend(&egress, &mut senders);
    let shares = per_weight(&senders);
    assert!((shares[0] - shares[1]).abs() <= shares[0] * 0.01, "{shares:?}");
    let frames = (senders[0].given + senders[1].given) / 60;
    assert!(frames.abs_diff(1_000_000) <= 5_000, "{frames}");
}

/// What a port with this limit sends if it offers frames of `len` bytes every `every` nanoseconds.
fn offer(limit: &Limit, len: u64, now: u64) -> u64 {
    let grant = limit.open(now);
    let frames = grant.bytes.div_ceil(len).min(grant.frames).min(256);
    limit.settle(&grant, frames * len, frames);
    frames * len
}

fn shared(rate: u64) -> Arc<Shared> {
    Arc::new(Shared::new(bits(rate, rate / 100)))
}

fn of(shared: &Arc<Shared>, guarantee: Option<u64>, ceiling: Option<u64>, weight: u32) -> Limit {
    let bucket = |rate: u64| Bucket::new(rate, rate / 100);
    let mut limit = Limit::new(Rates { bits: guarantee.map(bucket), frames: None });
    (limit.ceiling, limit.shared, limit.weight) = (ceiling.map(bucket), Some(Arc::clone(shared)), weight);
    limit
}

/// Rates in bits per second of ports with unlimited demand.
fn flood(limits: &[&Limit], lens: &[u64]) -> Vec<u64> {
    let mut sent = vec![0; limits.len()];
    for step in 0..200_000u64 {
        let now = START + step * 10_000;
        if step == 100_000 {
            sent.fill(0);
        }
        for (place, limit) in limits.iter().enumerate() {
            sent[place] += offer(limit, lens[place % lens.len()], now) * 8;
        }
    }
    sent
}

fn is_about(value: u64, wanted: u64) -> bool {
    value.abs_diff(wanted) * 200 <= wanted
}

#[test]
fn ports_that_share_a_bucket_have_together_what_it_gives() {
    let tenant = shared(1_000_000_000);
    let ports = [1, 1, 2].map(|weight| of(&tenant, None, None, weight));
    let sent = flood(&[&ports[0], &ports[1], &ports[2]], &[60, 1514, 65_549]);
    assert!(is_about(sent.iter().sum(), 1_000_000_000), "{sent:?}");
    for (port, wanted) in [(0, 250_000_000), (1, 250_000_000), (2, 500_000_000)] {
        assert!(sent[port].abs_diff(wanted) * 100 <= wanted, "{sent:?}");
    }
}

#[test]
fn a_guarantee_holds_under_a_flood_and_a_ceiling_bounds_what_is_lent() {
    let tenant = shared(1_000_000_000);
    let guaranteed = of(&tenant, Some(600_000_000), Some(650_000_000), 1);
    let bounded = of(&tenant, None, Some(100_000_000), 1);
    let rest = of(&tenant, None, None, 1);
    let sent = flood(&[&guaranteed, &bounded, &rest], &[1514]);
    assert!(is_about(sent.iter().sum(), 1_000_000_000), "{sent:?}");
    assert!(is_about(sent[0], 650_000_000), "{sent:?}");
    assert!(is_about(sent[1], 100_000_000), "{sent:?}");
    // Alone it gets its ceiling, and no more.
    let alone = flood(&[&bounded], &[1514]);
    assert!(is_about(alone[0], 100_000_000), "{alone:?}");
}

/// The rate of each sender to ports that share a bucket of a gigabit per second. Senders belong to the ports in
/// rotation.
fn give_by_loan(excess: Excess, ports: usize, ceiling: Option<u64>, senders: &mut [Sender]) -> Vec<f64> {
    let tenant = shared(1_000_000_000);
    let egress = |()| {
        let mut limit = of(&tenant, None, ceiling, 1);
        limit.excess = excess;
        Egress::new(limit)
    };
    let ports: Vec<Egress> = vec![(); ports].into_iter().map(egress).collect();
    contend_for(&ports.iter().collect::<Vec<_>>(), senders);
    let all = senders.iter().map(|sender| sender.given).sum::<u64>() * 8;
    assert!(is_about(all, 1_000_000_000), "{excess:?}: {all}");
    per_weight(senders)
}

#[test]
fn senders_share_what_a_bucket_lends_a_port_by_weight_and_bytes() {
    for excess in [Excess::Drop, Excess::Wait] {
        for ceiling in [None, Some(1_000_000_000)] {
            // The same sender is always first.
            let mut senders = [
                sender(1, &[60], 256, 10_000),
                sender(1, &[1514], 256, 10_000),
                sender(1, &[60, 590, 1514], 64, 11_000),
                sender(3, &[65_549], 32, 70_000),
            ];
            let shares = give_by_loan(excess, 1, ceiling, &mut senders);
            let mean = shares.iter().sum::<f64>() / 4.0;
            assert!(shares.iter().all(|share| (share / mean - 1.0).abs() < 0.02), "{excess:?} {ceiling:?}: {shares:?}");
        }
        // Two senders to each of two ports.
        let mut senders = [1514, 60, 256, 1514].map(|len| sender(1, &[len], 256, 10_000));
        let shares = give_by_loan(excess, 2, None, &mut senders);
        let mean = shares.iter().sum::<f64>() / 4.0;
        assert!(shares.iter().all(|share| (share / mean - 1.0).abs() < 0.02), "{excess:?}: {shares:?}");
    }
}

#[test]
fn who_wants_less_than_a_share_of_a_loan_gets_it_all() {
    // A demand of a tenth, beside two senders with unlimited demand. One of these comes just before.
    let mut senders = [sender(1, &[1514], 256, 10_000), sender(1, &[1250], 1, 100_000), sender(1, &[60], 256, 10_000)];
    let shares = give_by_loan(Excess::Drop, 1, None, &mut senders);
    assert!(senders[1].refused * 100 <= 10_000, "{} of 10,000 lost: {shares:?}", senders[1].refused);
    assert!(jain(&[shares[0], shares[2]]) >= 0.999, "{shares:?}");
}

/// Bits per second of a sender beside another that waits for its share again and again and takes nothing, or `crumb`
/// bytes every 10 ms, of a port that borrows from a bucket of this rate.
fn beside_one_that_does_not_take(rate: u64, crumb: usize) -> u64 {
    let mut limit = of(&shared(rate), None, None, 1);
    limit.excess = Excess::Wait;
    let egress = Egress::new(limit);
    let [one, other] = [0, 1].map(|index| member(index).sender());
    let mut given = 0;
    for step in 0..400_000u64 {
        let now = START + step * 10_000;
        if crumb > 0 && step % 1_000 == 0 {
            egress.admit(other, std::iter::once(Cost::of_one(crumb)), None, 0, now);
        }
        egress.begin_wait(other, now + 5_000_000, Cause::SharedBits, now);
        let frames = std::iter::repeat_n(Cost::of_one(1250), 8);
        given += egress.admit(one, frames, None, 0, now).cost.bytes * 8;
    }
    given / 4
}

#[test]
fn a_sender_that_waits_for_its_share_and_does_not_take_it_holds_up_nobody() {
    for rate in [100_000_000, 2_000_000_000] {
        for crumb in [0, 60] {
            let given = beside_one_that_does_not_take(rate, crumb);
            assert!(given * 100 >= rate * 97, "{crumb} bytes taken: {given} of {rate} bits per second");
        }
    }
}

#[test]
fn a_sender_that_takes_nothing_counts_as_waiting_for_a_while_only() {
    let congestion = Congestion::default();
    let [one, other] = [0, 1].map(|index| member(index).sender());
    let restricts = |from: u64, to: u64| {
        let mut restricted = 0;
        for now in (from..to).step_by(1_000_000) {
            congestion.waits(other, 0, now + 5_000_000, now);
            restricted += u64::from(congestion.most(one, 0, None, 0, now).0 == 0);
            congestion.served(one, 0, 100_000, true, now);
        }
        restricted
    };
    assert!(restricts(START, START + SECOND) < 130);
    // Also after a pause, and after others came.
    congestion.served(member(2).sender(), 0, 60, true, START + SECOND + 50_000_000);
    assert!(restricts(START + SECOND + 50_000_000, START + 2 * SECOND) <= 2);
    // What it takes makes it count again.
    congestion.served(other, 0, 60, false, START + 2 * SECOND);
    assert!(restricts(START + 2 * SECOND, START + 2 * SECOND + 100_000_000) > 50);
}

#[test]
fn who_waits_in_vain_and_connects_again_does_not_begin_anew() {
    let congestion = Congestion::default();
    let one = member(0).sender();
    let mut restricted = 0;
    for step in 0..1_000u64 {
        let now = START + step * 1_000_000;
        // Each 50 ms, on another index each time.
        let connection = (step / 50) as u16;
        let other = Member { owner: Owner::new(1 + connection, connection as u8), ..member(1) }.sender();
        congestion.waits(other, 0, now + 5_000_000, now);
        restricted += u64::from(congestion.most(one, 0, None, 0, now).0 == 0);
        congestion.served(one, 0, 100_000, true, now);
    }
    assert!(restricted < 130, "{restricted} of 1,000 ms");
}

proptest! {
    #[test]
    fn pollers_that_draw_on_one_bucket_never_have_more_than_it_gives(
        rate in 1_000_000u64..100_000_000_000,
        steps in prop::collection::vec((0usize..4, 0u64..3_000, 60u64..65_549), 100..2_000),
    ) {
        let tenant = Arc::new(Shared::new(bits(rate, 1_000_000)));
        let ports: Vec<Limit> = (0..4).map(|_| of(&tenant, None, None, 1)).collect();
        let (mut now, mut sent, mut longest) = (START, 0u128, 0);
        for (port, pause, len) in steps {
            now += pause;
            longest = longest.max(len);
            // Another port reserves meanwhile.
            let other = ports[(port + 1) % 4].open(now);
            sent += u128::from(offer(&ports[port], len, now) * 8);
            ports[(port + 1) % 4].settle(&other, 0, 0);
        }
        let earned = u128::from(now - START) * u128::from(rate) / u128::from(SECOND);
        prop_assert!(sent <= earned + 1_000_000 + u128::from(longest) * 8);
    }
}

#[test]
fn who_waits_comes_back_before_a_visit_holds_up_others() {
    // For long and for short frames, at most 64 KiB and 256 frames wait for a visit.
    for (len, most) in [(1514, 64 << 10), (65_226, 64 << 10), (60, 256 * 60)] {
        let limit = Limit::new(bits(1_000_000_000, 10_000_000));
        let mut now = START;
        while offer(&limit, len, now) > 0 {}
        let owed = limit.own.bits.as_ref().map_or(0, |bucket| -bucket.level_at(now) / 1_000_000_000);
        now = limit.resume_at(now);
        let waited = (now - START) as i64 - owed;
        assert!(waited > 0 && waited <= most * 8 + 1, "{len} bytes: {waited} ns");
    }
}

#[test]
fn a_sender_alone_may_use_the_whole_burst_and_one_more_has_half_at_once() {
    let egress = Egress::new(Limit::new(bits(1_000_000_000, 10_000_000)));
    let members = [member(0), member(1)];
    let give = |sender: usize, now: u64| {
        let frames = std::iter::repeat_n(Cost::of_one(1250), 2000);
        egress.admit(members[sender].sender(), frames, None, 0, now).cost.bytes * 8
    };
    let mut now = START;
    for _ in 0..2_000 {
        now += 50_000;
        give(0, now);
    }
    // The poller paused for nearly the length of the burst: all tokens of that time are there.
    now += 9_900_000;
    assert!(give(0, now).abs_diff(9_900_000) <= 20_000);
    // Another sender comes: within some batches, each has half.
    let mut had = [0; 2];
    for step in 0..20_000 {
        now += 25_000;
        let given = give(step % 2, now);
        if step >= 2_000 {
            had[step % 2] += given;
        }
    }
    assert!(had[0].abs_diff(had[1]) * 200 <= had[0], "{had:?}");
    let earned = 18_000 * 25_000;
    assert!((had[0] + had[1]).abs_diff(earned) * 200 <= earned, "{had:?}");
}

/// A member on port 0, of the client that has this account.
fn tenant(account: u32) -> Member {
    Member { account: Account::new(account), ..member(0) }
}

#[test]
fn who_leaves_hands_no_debt_to_the_next_port_with_its_index_and_takes_it_along() {
    let egress = Egress::new(Limit::new(bits(1_000_000, 1_000_000)));
    let (first, next, beside) = (tenant(1000), tenant(1001), member(1));
    let mut now = START;
    let give = |to: &Member, bytes: usize, now: u64| {
        egress.admit(to.sender(), std::iter::once(Cost::of_one(bytes)), None, 0, now).given
    };
    // A long frame puts the first sender far ahead of the other, which has its turn then.
    while give(&beside, 60, now) + give(&first, 65_000, now) < 2 {
        now += 1_000_000;
    }
    while give(&beside, 60, now) == 0 {
        now += 1_000_000;
    }
    assert_eq!(give(&first, 60, now), 0);
    let again = Member { owner: Owner::new(0, 1), ..first };
    assert_eq!(give(&again, 60, now), 0, "a client that connects again owes what it owed");
    assert_eq!(give(&next, 60, now), 1, "another client owes nothing");
    assert_eq!((give(&next, 60, now), give(&beside, 60, now)), (0, 1), "and has saved nothing");
}

#[test]
fn who_comes_anew_again_and_again_gets_no_credit_each_time() {
    let mut limit = Limit::new(bits(10_000_000, 125_000));
    limit.excess = Excess::Shape;
    let egress = Egress::new(limit);
    let (beside, short) = (member(1), Cost::of_one(200));
    let give = |to: &Member, now: u64| egress.admit(to.sender(), std::iter::once(short), None, 0, now).given;
    let credit = |to: &Member| (0..10_000).filter(|_| egress.pass_on_credit(to.sender(), short)).count();
    // The burst is gone.
    while give(&beside, START) + give(&tenant(1000), START) == 2 {}
    assert!(credit(&tenant(1000)) > 0, "a client that was allowed something may go beyond");
    for account in 1001..1100 {
        assert_eq!((give(&tenant(account), START), credit(&tenant(account))), (0, 0), "{account}");
    }
    // As the first one has used its credit up, the limit takes its time to pay for it.
    let now = START + 1_000_000_000;
    assert_eq!(give(&tenant(1100), now), 1);
    assert!(credit(&tenant(1100)) > 0);
}

#[test]
fn one_that_sends_now_and_then_finds_something_in_what_a_flood_is_limited_by() {
    for every in [20, 45, 70, 100, 250].map(|ms| ms * 1_000_000) {
        let egress = Egress::new(Limit::new(bits(1_000_000_000, 10_000_000)));
        let mut senders = [sender(1, &[1514], 256, 10_000), sender(1, &[100], 1, every)];
        contend(&egress, &mut senders);
        assert_eq!(senders[1].refused, 0, "every {every} ns");
        assert!(is_about(senders[0].given * 8, 1_000_000_000), "{}", senders[0].given);
    }
    // Two senders to a port with one bucket, in steps of 10 us. The first frame may come before the sender is known.
    for (every, len) in [(2_000, 1514), (10_000, 1514), (25_000, 65_549)] {
        let tenant = shared(1_000_000_000);
        let [flood, other] = [1, 1].map(|weight| of(&tenant, None, None, weight));
        let (mut had, mut given) = (0, 0);
        for step in 0..200_000u64 {
            had += offer(&flood, len, START + step * 10_000);
            if step % every == 0 {
                let grant = other.open(START + step * 10_000);
                let frames = grant.bytes.div_ceil(100).min(1);
                other.settle(&grant, frames * 100, frames);
                given += frames;
            }
        }
        assert!(given + 1 >= 200_000 / every, "{len} bytes, every {every} steps: {given}");
        assert!(is_about(had * 4, 1_000_000_000), "{had}");
    }
}

#[test]
fn one_that_sends_now_and_then_finds_something_in_a_loan_and_the_flood_has_the_rest() {
    for (excess, ceiling, every) in [
        (Excess::Drop, None, 5_000_000),
        (Excess::Drop, Some(100_000_000), 1_000_000),
        (Excess::Wait, None, 1_000_000),
        (Excess::Wait, Some(100_000_000), 5_000_000),
    ] {
        let tenant = shared(1_000_000_000);
        let mut limit = of(&tenant, None, ceiling, 1);
        limit.excess = excess;
        let mut senders = [sender(1, &[1514], 256, 10_000), sender(1, &[60], 1, every)];
        contend(&Egress::new(limit), &mut senders);
        assert_eq!(senders[1].given, 60 * SECOND / every, "{excess:?}, ceiling {ceiling:?}");
        assert!(is_about(senders[0].given * 8, ceiling.unwrap_or(1_000_000_000)), "{}", senders[0].given);
    }
    // Also beside many flooded ports.
    for ports in [4, 20] {
        let tenant = shared(1_000_000_000);
        let egress: Vec<Egress> = (0..ports).map(|_| Egress::new(of(&tenant, None, None, 1))).collect();
        let mut senders: Vec<Sender> = (0..ports).map(|_| sender(1, &[1514], 64, 10_000)).collect();
        senders.push(sender(1, &[60], 1, 5_000_000));
        contend_for(&egress.iter().collect::<Vec<_>>(), &mut senders);
        assert_eq!(senders[ports].given, 200 * 60, "{ports} ports");
        for sender in &senders[..ports] {
            assert!(is_about(sender.given * 8 * ports as u64, 1_000_000_000), "{ports} ports: {}", sender.given);
        }
    }
}

#[test]
fn segments_with_long_headers_take_no_more_than_their_share() {
    for cost in whole(vec![140_000], vec![65_549, 140_000, 196_533]) {
        let tenant = shared(1_000_000_000);
        let ports = [1, 1].map(|weight| of(&tenant, None, None, weight));
        let egress = Egress::new(Limit::new(bits(1_000_000_000, 10_000_000)));
        let mut sent = [[0; 2]; 2];
        for step in 0..100_000u64 {
            let now = START + step * 10_000;
            if step == 50_000 {
                sent = [[0; 2]; 2];
            }
            let grant = ports[0].open(now);
            let frames = grant.bytes.div_ceil(cost).min(4);
            ports[0].settle(&grant, frames * cost, frames * 1024);
            sent[0][0] += frames * cost * 8;
            sent[0][1] += offer(&ports[1], 1514, now) * 8;
            let segments = std::iter::repeat_n(Cost { bytes: cost, frames: 1024 }, 4);
            sent[1][0] += egress.admit(member(0).sender(), segments, None, 0, now).cost.bytes * 8;
            let plain = std::iter::repeat_n(Cost::of_one(1514), 32);
            sent[1][1] += egress.admit(member(1).sender(), plain, None, 0, now).cost.bytes * 8;
        }
        assert!(sent.as_flattened().iter().all(|&bits| is_about(bits, 250_000_000)), "{cost} bytes: {sent:?}");
    }
}
